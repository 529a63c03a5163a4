// `rxe-user stat`: devices, queue pairs and counters of running processes.
#ifndef TOOLS_RXE_USER_CLI_STAT_H_
#define TOOLS_RXE_USER_CLI_STAT_H_

#include <sys/types.h>

#include <cstdio>

namespace rxe_user_cli {

struct StatOptions {
  pid_t pid = 0;  // 0: all processes of the user; of all users for root
  bool json = false;
  // Interval in seconds at which changes are shown, until interrupted. 0: show
  // everything once.
  double watch = 0;
};

// Returns the exit status: 0 if something was shown; 1, with one line on `err`,
// if there is no such process or none runs. A closed reader of `out` is not an
// error.
int RunStat(const StatOptions& options, std::FILE* out, std::FILE* err);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_STAT_H_
