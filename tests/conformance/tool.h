// Runs rxe-user, for tests.
#ifndef TESTS_CONFORMANCE_TOOL_H_
#define TESTS_CONFORMANCE_TOOL_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace conformance {

// Runs the program RXE_USER_TEST_CLI with these arguments, by the shell.
// Returns what it prints, standard error included; `*status`, if not null, is
// as of pclose(3).
std::string RunTool(const std::string& arguments, int* status = nullptr);
// The lines that it prints with --json. Without an incomplete one: a file that
// is being written may end in the middle of a record.
std::vector<nlohmann::json> RunToolForJson(const std::string& arguments);

}  // namespace conformance

#endif  // TESTS_CONFORMANCE_TOOL_H_
