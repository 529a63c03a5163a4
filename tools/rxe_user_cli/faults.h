// `rxe-user faults PID add|list|remove|clear`: the rules for faults of a
// program while it runs.
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

// Parses PID and what follows. Rules are read from their file, and parsed: the
// program gets none that are wrong. False, with one line in `*error`, if it is
// not right.
bool ParseFaults(const std::vector<std::string>& words, FaultsOptions* options,
                 std::string* error);

// Prints the rules that there are, that were added or that were removed.
// Returns the exit status: 1, after one line on `err`, if the program refuses,
// or cannot be reached.
int RunFaults(const FaultsOptions& options, std::FILE* out, std::FILE* err);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_FAULTS_H_
