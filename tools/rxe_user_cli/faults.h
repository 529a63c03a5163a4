// `rxe-user faults PID add|list|remove|clear`: changes the fault rules of a
// running program.
#ifndef TOOLS_RXE_USER_CLI_FAULTS_H_
#define TOOLS_RXE_USER_CLI_FAULTS_H_

#include <sys/types.h>

#include <cstdio>
#include <string>
#include <vector>

#include "rxe_user/faults/fault_commands.h"

namespace rxe_user_cli {

struct FaultsOptions {
  pid_t pid = 0;
  rxe_user::FaultCommand command;
  bool json = false;
};

// Parses PID and the words after it. Reads rules from their file and checks
// them, so that the program gets no wrong ones. False, with one line in
// `*error`, on any mistake.
bool ParseFaults(const std::vector<std::string>& words, FaultsOptions* options,
                 std::string* error);

// Prints the rules that are in force, were added or were removed. Returns the
// exit status: 1, after one line on `err`, if the program refuses or cannot be
// reached.
int RunFaults(const FaultsOptions& options, std::FILE* out, std::FILE* err);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_FAULTS_H_
