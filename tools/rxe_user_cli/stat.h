// `rxe-user stat`: devices, queue pairs and counters of running processes.
#ifndef TOOLS_RXE_USER_CLI_STAT_H_
#define TOOLS_RXE_USER_CLI_STAT_H_

#include <sys/types.h>

#include <cstdio>

namespace rxe_user_cli {

struct StatOptions {
  pid_t pid = 0;  // 0: all processes of the user; of everybody for root
  bool json = false;
  // Seconds; changes are shown so often, until interrupted. 0: once, and all.
  double watch = 0;
};

// Exit status: 0 when something was shown, 1 when there is no such process or
// nothing runs, of which one line on `err` tells. That nobody reads on is no
// error.
int RunStat(const StatOptions& options, std::FILE* out, std::FILE* err);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_STAT_H_
