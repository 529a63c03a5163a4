// Prints docs/sqlog.schema.json.
#include <cstdio>

#include "tools/trace/sqlog.h"

int main() {
  std::fputs(trace::SqlogSchema().c_str(), stdout);
  return 0;
}
