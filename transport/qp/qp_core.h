// What the parts of one queue pair share: the queue pair itself, and the
// requester and responder of its transport service.
#ifndef TRANSPORT_QP_QP_CORE_H_
#define TRANSPORT_QP_QP_CORE_H_

#include <memory>
#include <optional>

#include "transport/base/counters.h"
#include "transport/base/types.h"
#include "transport/base/work.h"
#include "transport/congestion/path.h"
#include "transport/qp/attributes.h"
#include "transport/qp/completion_counter.h"
#include "transport/qp/receive_queue.h"
#include "transport/qp/send_queue.h"
#include "wire/opcode.h"

namespace transport {

struct QpCore {
  QpCore(const QpConfig& config, wire::Transport transport);

  // A part cannot go on: the queue pair goes to ERR, and raises `event`, when
  // the part's call has returned. The first one counts.
  void Fail(std::optional<QpEvent> event = std::nullopt);
  // Of an unreliable service, which goes to SQE: its sends are flushed.
  void FailSends();
  // SQD: what was begun is done.
  void NoteDrained();
  // The oldest send work request is done: takes it out of the queue and reports
  // it, unless it has succeeded and is unsignaled.
  void CompleteSend(WcStatus status, Time now);

  // Tells the counter that is attached for `what` of a completion; false if
  // none is. `bytes`: of the message, when it succeeded.
  bool Count(CountedCompletion what, bool success, uint64_t bytes) {
    return completion_counters != nullptr &&
           CountAttached(what, success, bytes);
  }

  // A work request without packets (SendKind::kLocal). What is not kOk
  // completes with WcStatus::kMwBindError.
  MemoryStatus ExecuteLocal(const SendWqe& wqe);

  QpConfig config;
  QpAttributes attributes;
  QpCounters counters;
  Path* path = nullptr;  // from RTR on; owned by the endpoint
  SendQueue send_queue;
  std::unique_ptr<ReceiveQueue> receive_queue;              // null with an SRQ
  std::unique_ptr<CompletionCounters> completion_counters;  // null: none
  const wire::Transport transport;  // that its packets name in BTH
  // The send completion queue has overrun: no more completions.
  bool send_cq_lost = false;

  // --- For the queue pair to act upon: `has_findings` if any is set.
  bool has_findings = false;
  bool failed = false;
  std::optional<QpEvent> failure_event;
  bool sends_failed = false;
  bool sq_drained = false;  // kSqDrained is to be raised

 private:
  bool CountAttached(CountedCompletion what, bool success, uint64_t bytes);
};

}  // namespace transport

#endif  // TRANSPORT_QP_QP_CORE_H_
