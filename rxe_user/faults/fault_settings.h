// The fault rules that a user asks for: RXE_USER_FAULTS, and `rxe-user run
// --faults`.
#ifndef RXE_USER_FAULTS_FAULT_SETTINGS_H_
#define RXE_USER_FAULTS_FAULT_SETTINGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/faults/rule.h"

namespace rxe_user {

// Stands for no rules yet; `rxe-user faults PID add` may add some.
inline constexpr std::string_view kNoFaultRules = "none";

struct FaultSettings {
  bool on = false;  // there are rules, or some may be added
  std::vector<transport::faults::Rule> rules;
  uint64_t seed = kDefaultSeed;

  static constexpr uint64_t kDefaultSeed = 1;
};

// Appends the rules of `value`: the name of a file, or the rules themselves
// (transport/faults/rule_parser.h). Returns what is wrong, with its place.
std::optional<std::string> LoadFaultRules(
    std::string_view value, std::vector<transport::faults::Rule>* out);
// Whether `value` is the name of a file rather than rules.
bool IsRuleFile(std::string_view value);
// Parses a seed. Returns what is wrong.
std::optional<std::string> ParseFaultSeed(std::string_view text,
                                          uint64_t* seed);

// Reads RXE_USER_FAULTS and RXE_USER_FAULTS_SEED. Without the first one, faults
// are off. Returns what is wrong; then no device may be used. May read a file.
// Thread: any, while no thread changes the environment.
std::optional<std::string> ReadFaultSettings(FaultSettings* out);

}  // namespace rxe_user

#endif  // RXE_USER_FAULTS_FAULT_SETTINGS_H_
