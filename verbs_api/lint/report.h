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
  std::string text;         // "server+0x12e4": file and offset; "": not known
  bool by_rdma_cm = false;  // librdmacm made the call, for the program
};
// Of the current call. Walks the stack: for calls that are rare. Thread: any.
// Takes the dynamic linker's lock, so the caller has none of its own.
Origin FindOrigin();

}  // namespace verbs_api::lint

#endif  // VERBS_API_LINT_REPORT_H_
