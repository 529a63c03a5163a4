#include "verbs_api/libibverbs/refusal.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <new>
#include <string>
#include <thread>

#include "rxe_user/faults/process_faults.h"
#include "rxe_user/observe/process_files.h"
#include "rxe_user/observe/refusals.h"

namespace verbs_api {
namespace {

// The check that refused the calling thread's current call. A character array,
// since a thread_local object with a destructor would need one more
// registration for each thread.
thread_local char noted[160];
// For the recording: the number of calls of the thread that have begun, and the
// arguments of the innermost one. Longer than the member of an event, so that
// the cut is noticed.
thread_local int depth = 0;
thread_local char arguments[2 * sizeof(rxe_user::trace::CallEvent::arguments)];

void AddArgument(const char* text) {
  const size_t size = std::char_traits<char>::length(arguments);
  std::snprintf(arguments + size, sizeof(arguments) - size, "%s%s",
                size == 0 ? "" : " ", text);
}

// "PostSend" implements ibv_post_send(3).
std::string CallName(const char* function) {
  const std::string name = function;
  if (name.starts_with("ibv_") || name.starts_with("rdma_")) return name;
  std::string call = "ibv";
  for (const char c : name) {
    if (std::isupper(static_cast<unsigned char>(c)) != 0) call += '_';
    call += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return call;
}

}  // namespace

int Because(int error, const char* check) {
  const size_t size =
      std::min(std::char_traits<char>::length(check), sizeof(noted) - 1);
  std::char_traits<char>::copy(noted, check, size);
  noted[size] = '\0';
  return error;
}

int Because(int error, const std::string& check) {
  return Because(error, check.c_str());
}

void ReportRefusal(const char* function, int error) noexcept {
  const int before = errno;
  try {
    const std::string check = noted;
    noted[0] = '\0';
    const std::string name = CallName(function);
    rxe_user::NoteRefusal(name.c_str(), error, check);
    if (depth > 0) {
      if (!check.empty()) AddArgument(("refused: " + check).c_str());
    } else if (auto* const tracer = rxe_user::CurrentTracer()) {
      tracer->OnCall(name, check.empty() ? "" : "refused: " + check,
                     rxe_user::Tracer::Now(), error, error);
    }
  } catch (const std::bad_alloc&) {
    // Without memory, the refusal is not noted.
  }
  errno = before;
}

int FailOnCommand(const char* function,
                  std::optional<uint64_t> wr_id) noexcept {
  rxe_user::ProcessFaults* const faults = rxe_user::ProcessFaults::Find();
  if (faults == nullptr || !faults->is_for_calls()) return 0;
  try {
    const transport::faults::NumberedFate fate =
        faults->DecideCall(CallName(function), wr_id);
    const transport::faults::Rule* const rule = fate.rule;
    if (rule == nullptr) return 0;
    if (rule->action != transport::faults::Action::kFail) {
      if (auto* const tracer = rxe_user::CurrentTracer()) {
        tracer->OnFault(*rule, 0,
                        {.number = static_cast<uint32_t>(fate.number),
                         .delay = fate.delay});
      }
      if (rule->action == transport::faults::Action::kDelay) {
        std::this_thread::sleep_for(std::chrono::nanoseconds(fate.delay));
      }
      return 0;
    }
    if (auto* const tracer = rxe_user::CurrentTracer()) {
      tracer->CountFault(rule->number);
    }
    // A recording does not contain the other calls of a function that it does
    // not trace.
    const bool is_alone = depth == 0 && rxe_user::CurrentTracer() != nullptr;
    return Because(
        rule->error,
        "fault rule " + std::to_string(rule->number) +
            (is_alone ? ", call " + std::to_string(fate.number) : "") + " (" +
            rule->text + ")");
  } catch (const std::bad_alloc&) {
    return 0;
  }
}

int64_t CallBegins() noexcept {
  if (rxe_user::CurrentTracer() == nullptr) return 0;
  ++depth;
  arguments[0] = '\0';
  return rxe_user::Tracer::Now();
}

void CallArgument(const char* name, uint64_t value) noexcept {
  if (depth == 0) return;
  char text[64];
  std::snprintf(text, sizeof(text), "%s=0x%" PRIx64, name, value);
  AddArgument(text);
}

void CallEnds(const char* function, int64_t began, int64_t result,
              int error) noexcept {
  const int before = errno;
  --depth;
  try {
    if (auto* const tracer = rxe_user::CurrentTracer()) {
      tracer->OnCall(CallName(function), arguments, began, result, error);
    }
  } catch (const std::bad_alloc&) {
    // Without memory, the call is not recorded.
  }
  errno = before;
}

}  // namespace verbs_api
