// `rxe-user faults of FILE`: the faults of a recording, as rules that repeat
// them.
#ifndef TOOLS_RXE_USER_CLI_FIRED_RULES_H_
#define TOOLS_RXE_USER_CLI_FIRED_RULES_H_

#include <cstddef>
#include <cstdio>
#include <string>

#include "tools/trace/recording.h"

namespace rxe_user_cli {

struct FiredRules {
  std::string text;  // a line for each rule; comments say what is left out
  size_t rules = 0;
  size_t left_out = 0;
};

// Returns a rule for each fault, in the order of the file. A rule names a
// packet by queue pair, opcode, PSN and iteration, and a call or a failed
// completion by its number. Takes time linear in the recording.
FiredRules RulesThatFired(const trace::Recording& recording);

// Prints them. Returns the exit status: 1 if the file cannot be read, or has no
// fault.
int RunFaultsOf(const std::string& path, std::FILE* out, std::FILE* err);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_FIRED_RULES_H_
