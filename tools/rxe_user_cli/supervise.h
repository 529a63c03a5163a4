// Runs a program as a child and stands for it: signals to this process reach
// the program, and its end is known.
#ifndef TOOLS_RXE_USER_CLI_SUPERVISE_H_
#define TOOLS_RXE_USER_CLI_SUPERVISE_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace rxe_user_cli {

// Runs `execute` in a child, with this process's terminal, process group,
// descriptors and signal mask; it replaces the child by the program, or returns
// the exit status of a failure. Returns the program's wait status (wait(2));
// none, with errno, if there is no child.
//
// - A signal to this process goes to the program. One of the terminal does not:
//   it has reached the program's process group, which is ours.
// - When the terminal stops the program, this process stops too, so that a
//   shell with job control sees it.
// - If this process is killed, so is the program.
// One thread. From then on all signals of the process are blocked.
std::optional<int> Supervise(const std::function<int()>& execute);

// The exit status of a shell for a wait status: 128 and the signal's number
// for a program that was killed.
int ExitStatusOf(int wait_status);

// Waits until no process has an exclusive flock(2) of a file in `folder`, at
// most `seconds`; after Supervise. SIGHUP, SIGINT and SIGTERM end it. Returns
// the files that are still locked.
std::vector<std::string> AwaitUnlocked(const std::string& folder, int seconds);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_SUPERVISE_H_
