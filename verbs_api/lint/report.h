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
// kMaxLines findings of one lint, no more of them are printed. Takes no lock
// of this module. Thread: any.
inline constexpr int kMaxLines = 20;
void Report(const Finding& finding);

// The place at which the program called our libraries.
struct Origin {
  std::string text;         // "server+0x12e4": file and offset; "": unknown
  bool by_rdma_cm = false;  // librdmacm made the call on behalf of the program
};
// The origin of the current call. Walks the stack, so it is for rare calls
// only. Takes the dynamic linker's lock, so the caller must hold no lock of its
// own. Thread: any.
Origin FindOrigin();

}  // namespace verbs_api::lint

#endif  // VERBS_API_LINT_REPORT_H_
