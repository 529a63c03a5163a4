// `rxe-user run` with --expect, --tap or --junit.
#ifndef TOOLS_RXE_USER_CLI_EXPECTING_RUN_H_
#define TOOLS_RXE_USER_CLI_EXPECTING_RUN_H_

#include <functional>
#include <string>
#include <vector>

#include "tools/rxe_user_cli/expectation.h"
#include "transport/faults/rule.h"

namespace rxe_user_cli {

// Our exit status if the program succeeded and an expectation was not met.
inline constexpr int kExitNotAsExpected = 99;

struct ExpectOptions {
  std::vector<Expectation> expectations;
  std::vector<transport::faults::Rule> rules;  // fault rules
  bool tap = false;                            // print TAP on stderr
  std::string tap_file;                        // write TAP there; empty: no
  std::string junit;    // write JUnit's XML there; empty: no
  std::string command;  // the command line, quoted for a shell

  bool any() const {
    return !expectations.empty() || tap || !tap_file.empty() || !junit.empty();
  }
};

// Adds the expectation `text`, or those of the file, one per line. Empty lines
// and lines that begin with # are skipped. False, with one line in `*why`, if
// an expectation is wrong.
bool AddExpectation(const std::string& text, ExpectOptions* options,
                    std::string* why);
bool AddExpectationFile(const std::string& file, ExpectOptions* options,
                        std::string* why);

// Runs the program by `execute` (see Supervise) and judges what it did. Each
// fault rule without `maybe` is expected to fire. Returns the program's exit
// status (ExitStatusOf); kExitNotAsExpected if that is 0 and an expectation is
// not met; kExitOurFailure, after one line on stderr, if the program cannot be
// run and judged.
int RunExpecting(const std::string& program, const ExpectOptions& options,
                 const std::function<int()>& execute);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_EXPECTING_RUN_H_
