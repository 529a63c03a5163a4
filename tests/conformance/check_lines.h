// What `rxe-user run --check` says, among other lines on stderr.
#ifndef TESTS_CONFORMANCE_CHECK_LINES_H_
#define TESTS_CONFORMANCE_CHECK_LINES_H_

#include <sstream>
#include <string>

namespace conformance {

// The lines of `said` that are from checks. On some systems there are others,
// such as about a UDP port that cannot be shared.
inline std::string CheckLines(const std::string& said) {
  std::istringstream lines(said);
  std::string checks;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("rxe_user: check: ")) checks += line + "\n";
  }
  return checks;
}

}  // namespace conformance

#endif  // TESTS_CONFORMANCE_CHECK_LINES_H_
