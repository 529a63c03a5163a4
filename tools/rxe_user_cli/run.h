// `rxe-user run`: a command on our device.
#ifndef TOOLS_RXE_USER_CLI_RUN_H_
#define TOOLS_RXE_USER_CLI_RUN_H_

#include <functional>
#include <optional>
#include <string>

namespace rxe_user_cli {

// As env(1), nohup(1) and shells have them.
inline constexpr int kExitOurFailure = 125;
inline constexpr int kExitCannotExecute = 126;
inline constexpr int kExitNotFound = 127;

struct RunOptions {
  bool view = true;      // it finds our devices in /sys and /dev (tools/view)
                         // and by rdma(8) (rdma.h)
  bool sockets = false;  // its TCP goes over RDMA (librspreload.so)
  std::string capture;   // where its packets go (SetCapture); empty: nowhere
};

// Replaces this process by the command, with our libraries in front of the
// system's.
// Returns only on failure, after one line on stderr: the exit status. `argv`
// ends with a null pointer and is not empty.
int Run(char** argv, const RunOptions& options);

// What LD_LIBRARY_PATH or PATH has to be: `folder` first, then what it was.
std::string PathList(const std::string& folder, const char* before);

// What LD_PRELOAD has to be: what it was, and then `library`.
std::string PreloadList(const std::string& library, const char* before);

// The elements of `list`, which one of `separators` ends, without those that
// `left_out` is true for; joined by the first separator.
std::string Without(const std::string& list, const char* separators,
                    const std::function<bool(const std::string&)>& left_out);

// What ASAN_OPTIONS has to be, so that programs with AddressSanitizer start
// though a library is loaded before its runtime.
std::string AsanOptions(const char* before);

// Why the dynamic linker will not heed LD_LIBRARY_PATH for the program `file`
// when this process starts it ("is setuid"); absent if it will.
std::optional<std::string> WhySecure(const std::string& file);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_RUN_H_
