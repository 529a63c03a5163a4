#include "tools/trace/format_page.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace trace {
namespace {

TEST(FormatPageTest, ThePageIsThatOfTheTable) {
  std::ifstream file("docs/trace-format.md");
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_EQ(page.str(), FormatPage())
      << "bazel run //tools/trace:format_page > docs/trace-format.md";
}

}  // namespace
}  // namespace trace
