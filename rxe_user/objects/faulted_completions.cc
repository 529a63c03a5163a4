#include "rxe_user/objects/faulted_completions.h"

#include <new>

namespace rxe_user {

using transport::Completion;
using transport::Reason;
using transport::WcStatus;
using transport::faults::Action;
using transport::faults::Rule;

bool FaultedCompletions::Push(const Completion& completion) {
  Completion changed = completion;
  // Requests that were posted after a failed one are flushed.
  if (failed_ && changed.status == WcStatus::kSuccess) {
    changed.status = WcStatus::kFlushed;
    changed.reason = Reason::kFaultOnCommand;
  }
  const Rule* rule = nullptr;
  if (changed.status == WcStatus::kSuccess && faults_.changes_completions()) {
    const transport::CqReport report = sink_.Report();
    rule = faults_.DecideCompletion(
        {.sent = sends_,
         .qpn = completion.qpn,
         .wr_id = completion.wr_id,
         .bytes = completion.byte_len,
         .may_be_late = report.has_channel && !report.armed && late_.empty()});
  }
  bool is_late = !late_.empty();
  if (rule != nullptr) {
    on_fault_(*rule, completion);
    if (rule->action == Action::kOverrun) {
      cq_.Overrun();
      return false;
    }
    if (rule->action == Action::kComplete) {
      failed_ = true;
      changed.status = static_cast<WcStatus>(rule->status);
      changed.reason = Reason::kFaultOnCommand;
    } else {
      is_late = true;
    }
  }
  if (is_late) {
    try {
      late_.push_back(changed);
      return true;
    } catch (const std::bad_alloc&) {
      // Without memory, the completions are not late.
      Reveal();
    }
  }
  return sink_.Push(changed);
}

void FaultedCompletions::Reveal() {
  while (!late_.empty()) {
    const Completion completion = late_.front();
    late_.pop_front();
    // If the queue has overrun, its queue pairs fail when it is polled.
    if (!sink_.Push(completion)) completion.slot.Free();
  }
}

void FaultedCompletions::Forget() {
  for (const Completion& completion : late_) completion.slot.Free();
  late_.clear();
  failed_ = false;
}

}  // namespace rxe_user
