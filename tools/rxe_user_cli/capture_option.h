// `rxe-user run --capture` and `--trace`: set RXE_USER_CAPTURE and
// RXE_USER_TRACE for the library.
#ifndef TOOLS_RXE_USER_CLI_CAPTURE_OPTION_H_
#define TOOLS_RXE_USER_CLI_CAPTURE_OPTION_H_

#include <string>

namespace rxe_user_cli {

// Makes this process and those that it starts capture to `file`: sets the
// variable to its absolute path, because programs may change their folder.
// Removes an existing capture of that name, so that the first program can
// create it. Returns false, after one line on stderr, on failure, or if the
// file exists and is not a capture.
bool SetCapture(const std::string& file);
// The same for a recording.
bool SetTrace(const std::string& file);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_CAPTURE_OPTION_H_
