// `rxe-user run --capture`: what the library finds in RXE_USER_CAPTURE.
#ifndef TOOLS_RXE_USER_CLI_CAPTURE_OPTION_H_
#define TOOLS_RXE_USER_CLI_CAPTURE_OPTION_H_

#include <string>

namespace rxe_user_cli {

// Has programs that this process becomes or starts capture to `file`, wherever
// they go: sets the variable to its absolute path. Removes a capture of that
// name, so that the first program gets it. False, after one line on stderr,
// also if there is a file that is no capture.
bool SetCapture(const std::string& file);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_CAPTURE_OPTION_H_
