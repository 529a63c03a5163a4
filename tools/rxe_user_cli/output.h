// What a command writes to its output.
#ifndef TOOLS_RXE_USER_CLI_OUTPUT_H_
#define TOOLS_RXE_USER_CLI_OUTPUT_H_

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

namespace rxe_user_cli {

// False, with errno, if `out` cannot be written.
inline bool WriteText(const std::string& text, std::FILE* out) {
  return std::fwrite(text.data(), 1, text.size(), out) == text.size() &&
         std::fflush(out) == 0;
}

// The exit status after a failed write, with errno. A closed reader (EPIPE) is
// not an error; others are a line on `err`. `program`: "rxe-user stat".
inline int OutputFailed(const char* program, std::FILE* err) {
  if (errno == EPIPE) return 0;
  std::fprintf(err, "%s: cannot write: %s\n", program, std::strerror(errno));
  return 1;
}

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_OUTPUT_H_
