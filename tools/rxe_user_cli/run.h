// `rxe-user run`: runs a command with our libraries.
#ifndef TOOLS_RXE_USER_CLI_RUN_H_
#define TOOLS_RXE_USER_CLI_RUN_H_

#include <functional>
#include <optional>
#include <string>

#include "tools/rxe_user_cli/expecting_run.h"

namespace rxe_user_cli {

// The exit statuses of env(1), nohup(1) and shells.
inline constexpr int kExitOurFailure = 125;
inline constexpr int kExitCannotExecute = 126;
inline constexpr int kExitNotFound = 127;

struct RunOptions {
  // Show our devices in /sys, /dev (tools/view) and rdma(8) (rdma.h).
  bool view = true;
  bool sockets = false;     // carry TCP over RDMA (librspreload.so)
  bool mlx5 = false;        // every device looks like mlx5 (docs/mlx5dv.md)
  bool explain = false;     // explain failures (RXE_USER_EXPLAIN)
  std::string capture;      // capture packets here (SetCapture); empty: no
  std::string trace;        // record here (SetTrace); empty: no
  bool payload = false;     // record whole packets
  std::string faults;       // rules for faults (RXE_USER_FAULTS); empty: none
  std::string faults_seed;  // RXE_USER_FAULTS_SEED; empty: the default
  std::string check;     // check its use of verbs (RXE_USER_CHECK); empty: no
  ExpectOptions expect;  // what is expected of it
};

// Replaces this process by the command, with our libraries before the system's.
// Returns only on failure, after one line on stderr: the exit status. If
// something is expected of the command, it runs as a child (RunExpecting).
// `argv` is not empty and ends with a null pointer.
int Run(char** argv, const RunOptions& options);

// A value for LD_LIBRARY_PATH or PATH: `folder`, then the old value.
std::string PathList(const std::string& folder, const char* before);

// A value for LD_PRELOAD: the old value, then `library`.
std::string PreloadList(const std::string& library, const char* before);

// The elements of `list` for which `left_out` is false. Any of `separators`
// ends an element; the first one joins the result.
std::string Without(const std::string& list, const char* separators,
                    const std::function<bool(const std::string&)>& left_out);

// A value for ASAN_OPTIONS with which programs with AddressSanitizer start
// although another library is loaded before its runtime.
std::string AsanOptions(const char* before);

// Why the dynamic linker ignores LD_LIBRARY_PATH when this process starts the
// program `file` ("is setuid"). Absent if it does not.
std::optional<std::string> WhyLibraryPathIgnored(const std::string& file);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_RUN_H_
