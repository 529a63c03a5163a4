#include "tests/conformance/tool.h"

#include <cstdio>
#include <cstdlib>

namespace conformance {

std::string RunTool(const std::string& arguments, int* status) {
  const std::string command =
      std::string(std::getenv("RXE_USER_TEST_CLI")) + " " + arguments + " 2>&1";
  std::FILE* const out = popen(command.c_str(), "r");
  std::string text;
  char part[4096];
  for (size_t n; (n = std::fread(part, 1, sizeof(part), out)) > 0;) {
    text.append(part, n);
  }
  const int ended = pclose(out);
  if (status != nullptr) *status = ended;
  return text;
}

}  // namespace conformance
