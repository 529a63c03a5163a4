// Findings: one line each on stderr.
#ifndef VERBS_API_LINT_REPORT_H_
#define VERBS_API_LINT_REPORT_H_

#include <string>

#include "verbs_api/lint/lints.h"

namespace verbs_api::lint {

struct Finding {
  Lint lint;
  std::string where;  // "queue pair 0x00012a (made by server+0x12e4)"
  std::string what;
  std::string remedy;
};

// Prints the finding, and counts it for `rxe-user run --expect`. After
// kMostLines findings of a lint, the rest of them have no lines. Takes no lock
// of this module. Thread: any.
inline constexpr int kMostLines = 20;
void Report(const Finding& finding);

// Where the program called our libraries.
struct Origin {
  const void* address = nullptr;  // null: not known
  bool by_rdma_cm = false;        // librdmacm made the call, for the program
};
// Of the current call. Walks the stack: for calls that are rare. Thread: any.
Origin FindOrigin();
// "server+0x12e4": file and offset. "" if it is not known.
std::string TextOf(const Origin& origin);

}  // namespace verbs_api::lint

#endif  // VERBS_API_LINT_REPORT_H_
