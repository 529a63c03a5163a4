// Stands between one work queue of a queue pair and its completion queue:
// completions fail, are lost or are delayed on command
// (docs/faults-on-command.md). Queue pairs of a process with faults off do not
// have it.
#ifndef RXE_USER_OBJECTS_FAULTED_COMPLETIONS_H_
#define RXE_USER_OBJECTS_FAULTED_COMPLETIONS_H_

#include <deque>
#include <functional>

#include "rxe_user/faults/process_faults.h"
#include "rxe_user/objects/completion_queue.h"
#include "transport/base/work.h"
#include "transport/faults/rule.h"

namespace rxe_user {

// Thread: any, with the lane's lock held.
class FaultedCompletions final : public transport::CompletionSink {
 public:
  // A rule has hit the completion.
  using OnFault = std::function<void(const transport::faults::Rule&,
                                     const transport::Completion&)>;

  // `sink` passes completions to `cq`. `sends`: they are of the send queue.
  // `faults`, `sink` and `cq` must outlive this object.
  FaultedCompletions(ProcessFaults& faults, transport::CompletionSink& sink,
                     CompletionQueue& cq, bool sends, OnFault on_fault)
      : faults_(faults),
        sink_(sink),
        cq_(cq),
        sends_(sends),
        on_fault_(std::move(on_fault)) {}
  ~FaultedCompletions() override { Forget(); }

  bool Push(const transport::Completion& completion) override;
  transport::CqReport Report() override { return sink_.Report(); }

  // Whether a completion has failed on command; the queue pair must then fail,
  // too.
  bool failed() const { return failed_; }
  // Passes on the delayed completions.
  void Reveal();
  // The queue pair was reset or is being destroyed: drops the delayed
  // completions.
  void Forget();

 private:
  ProcessFaults& faults_;
  transport::CompletionSink& sink_;
  CompletionQueue& cq_;
  const bool sends_;
  const OnFault on_fault_;
  bool failed_ = false;
  // Delayed completions, in order. While there are any, all later ones are
  // queued after them.
  std::deque<transport::Completion> late_;
};

}  // namespace rxe_user

#endif  // RXE_USER_OBJECTS_FAULTED_COMPLETIONS_H_
