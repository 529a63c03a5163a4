// The commands that `rxe-user faults PID` sends to a process by its stat socket
// (observe/stat_socket.h), and the answers.
#ifndef RXE_USER_FAULTS_FAULT_COMMANDS_H_
#define RXE_USER_FAULTS_FAULT_COMMANDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rxe_user/faults/process_faults.h"

namespace rxe_user {

struct FaultCommand {
  enum class Kind : uint8_t { kList, kAdd, kRemove };
  Kind kind = Kind::kList;
  std::string rules;              // kAdd: their text
  std::vector<uint32_t> numbers;  // kRemove: empty: all
};

// The command as it is sent.
std::string FaultCommandText(const FaultCommand& command);

// --- The process with the faults.

// Carries out a command and returns the answer; an error in it is one line.
// `faults`: null if they are off. Thread: any, without a lock of a lane.
std::string AnswerFaultCommand(const std::string& text, ProcessFaults* faults);

// --- The tool.

// The rules in the answer: all rules, or those that were added or removed.
// Errors: the process's error, or what is wrong with its answer.
absl::StatusOr<std::vector<FaultRuleStatus>> ReadFaultAnswer(
    const std::string& answer);

}  // namespace rxe_user

#endif  // RXE_USER_FAULTS_FAULT_COMMANDS_H_
