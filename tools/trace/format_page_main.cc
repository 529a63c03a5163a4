// Prints docs/trace-format.md.
#include <cstdio>

#include "tools/trace/format_page.h"

int main() {
  std::fputs(trace::FormatPage().c_str(), stdout);
  return 0;
}
