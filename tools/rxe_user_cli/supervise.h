// Runs a program as a child, and forwards signals to it, until it ends.
#ifndef TOOLS_RXE_USER_CLI_SUPERVISE_H_
#define TOOLS_RXE_USER_CLI_SUPERVISE_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace rxe_user_cli {

// Runs `execute` in a child, with this process's terminal, process group,
// descriptors and signal mask. `execute` replaces the child by the program, or
// returns the exit status of a failure. Returns the program's wait status
// (wait(2)); none, with errno, if there is no child.
//
// - A signal to this process is forwarded to the program. A signal of the
//   terminal is not: it has reached the program already, which is in our
//   process group.
// - When the terminal stops the program, this process stops too, so that a
//   shell with job control sees it.
// - If this process is killed, so is the program.
// One thread. From then on all signals of the process are blocked.
std::optional<int> Supervise(const std::function<int()>& execute);

// The exit status of a shell for a wait status: 128 plus the signal's number
// for a program that was killed.
int ExitStatusOf(int wait_status);

// Waits until no process has an exclusive flock(2) of a file in `folder`, at
// most `seconds`. SIGHUP, SIGINT and SIGTERM end the wait. To be called after
// Supervise. Returns the files that are still locked.
std::vector<std::string> AwaitUnlocked(const std::string& folder, int seconds);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_SUPERVISE_H_
