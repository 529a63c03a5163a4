#include "verbs_api/lint/report.h"

#include <dlfcn.h>
#include <unwind.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>

#include "rxe_user/base/warn_once.h"
#include "rxe_user/observe/process_files.h"

namespace verbs_api::lint {
namespace {

// The name of the file without its folders.
const char* FileName(const Dl_info& info) {
  if (info.dli_fname == nullptr) return "";
  const char* const slash = std::strrchr(info.dli_fname, '/');
  return slash != nullptr ? slash + 1 : info.dli_fname;
}

}  // namespace

void Report(const Finding& finding) {
  if (rxe_user::Tally* const tally = rxe_user::ProcessTally()) tally->OnLint();
  static constinit std::array<std::atomic<int>, kLintCount> lines{};
  const int before = lines[static_cast<size_t>(finding.lint)].fetch_add(
      1, std::memory_order_relaxed);
  if (before > kMaxLines) return;
  const LintText& text = TextOf(finding.lint);
  const std::string name = "check: lint " + std::to_string(text.number) + " (" +
                           std::string(text.name) + "): ";
  if (before == kMaxLines) {
    rxe_user::Warn(name + "more of them are not shown");
    return;
  }
  rxe_user::Warn(name + finding.where + ": " + finding.what + "; " +
                 finding.remedy);
}

Origin FindOrigin() {
  // No exception may pass through the stack walk, so it makes no string.
  struct Walk {
    const void* own = nullptr;  // where this library is
    char text[160] = "";
    bool by_rdma_cm = false;
  } walk;
  Dl_info self;
  if (dladdr(reinterpret_cast<const void*>(&FindOrigin), &self) == 0) return {};
  walk.own = self.dli_fbase;
  _Unwind_Backtrace(
      [](_Unwind_Context* context, void* argument) {
        Walk& to = *static_cast<Walk*>(argument);
        // Look up the address before the return address, since the call may be
        // the last instruction of its function.
        const auto* const at =
            reinterpret_cast<const char*>(_Unwind_GetIP(context)) - 1;
        Dl_info info;
        if (dladdr(at, &info) == 0) return _URC_END_OF_STACK;
        if (info.dli_fbase == to.own) return _URC_NO_REASON;
        if (std::strncmp(FileName(info), "librdmacm.so", 12) == 0) {
          to.by_rdma_cm = true;
          return _URC_NO_REASON;
        }
        std::snprintf(to.text, sizeof(to.text), "%.100s+0x%tx", FileName(info),
                      at - static_cast<const char*>(info.dli_fbase));
        return _URC_END_OF_STACK;
      },
      &walk);
  return {.text = walk.text, .by_rdma_cm = walk.by_rdma_cm};
}

}  // namespace verbs_api::lint
