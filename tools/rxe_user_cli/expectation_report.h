// Formats the result of `rxe-user run --expect`, for people and for CI.
#ifndef TOOLS_RXE_USER_CLI_EXPECTATION_REPORT_H_
#define TOOLS_RXE_USER_CLI_EXPECTATION_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tools/rxe_user_cli/expectation_facts.h"

namespace rxe_user_cli {

struct RunResult {
  std::string program;   // its name
  std::string command;   // a shell command that repeats the run
  std::string folder;    // where it ran
  int wait_status = 0;   // wait(2)
  int64_t begin = 0;     // s since 1970
  int64_t duration = 0;  // ns
  std::string host;
  std::vector<std::pair<std::string, Judgement>> expectations;  // texts

  bool is_as_expected() const;
};

// "status 7", "signal 15 (Terminated)".
std::string EndOf(const RunResult& result);
// The words as a shell reads them back.
std::string QuoteForShell(const std::vector<std::string>& words);

// A line for each expectation that is not met, and one with the command that
// repeats the run. Empty if all are met.
std::string ResultAsLines(const RunResult& result);
// Test Anything Protocol, version 13. The first test is the program's status.
std::string ResultAsTap(const RunResult& result);
// JUnit's XML: a test suite with a test case for the program's status and one
// for each expectation; <failure> for those that are not met, <error> if that
// is unknown.
std::string ResultAsJUnit(const RunResult& result);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_EXPECTATION_REPORT_H_
