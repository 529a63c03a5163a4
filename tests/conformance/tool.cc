#include "tests/conformance/tool.h"

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <utility>

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

std::vector<nlohmann::json> RunToolForJson(const std::string& arguments) {
  std::istringstream text(RunTool(arguments));
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(text, line);) {
    nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_discarded()) lines.push_back(std::move(json));
  }
  return lines;
}

}  // namespace conformance
