// State shared by the parts of a queue pair: the queue pair itself and its
// service's requester and responder.
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
#include "transport/qp/header_front.h"
#include "transport/qp/receive_queue.h"
#include "transport/qp/send_queue.h"
#include "wire/opcode.h"

namespace transport {

struct QpCore {
  QpCore(const QpConfig& config, wire::Transport transport);

  // Reports a fatal error of a part: after the current call, the queue pair
  // enters ERR and raises `event`. The first call counts.
  void Fail(Reason reason, std::optional<QpEvent> event = std::nullopt);
  // The same for an unreliable service: it enters SQE, which flushes its sends.
  void FailSends(Reason reason);
  // Counts a rare event (rare_event.h) and passes it on.
  [[gnu::cold]] void Note(RareEventKind kind, Time now, uint64_t psn = 0,
                          uint32_t value = 0);
  // The queue pair's first error, from which all flushed work requests follow.
  void NoteFirstError(Reason reason) {
    if (first_error == Reason::kNone) first_error = reason;
  }
  // SQD: everything that was begun has completed.
  void NoteDrained();
  // QpConfig::stops_at_data_errors: an error was found.
  void NoteDataError() { has_findings = data_error = true; }
  // Whether an error was found in the buffers of a send work request.
  bool HasDataError(uint64_t index) const;
  // Removes the oldest send work request and pushes its completion, unless it
  // succeeded and is unsignaled.
  void CompleteSend(WcResult result, Time now);

  // Counts a completion with the counter attached for `what`. False if there is
  // none. `bytes`: message length, on success.
  bool Count(CountedCompletion what, bool success, uint64_t bytes) {
    return completion_counters != nullptr &&
           CountAttached(what, success, bytes);
  }

  // Executes a work request without packets (SendKind::kLocal), the oldest.
  WcResult ExecuteLocal(const SendWqe& wqe);

  // Writes the service's own header, if it has one, into a packet that has its
  // AETH, if any.
  void EmitFront(uint8_t opcode, uint8_t* packet) const {
    if (front != nullptr) front->Emit(opcode, packet);
  }

  QpConfig config;
  QpAttributes attributes;
  QpCounters counters;
  Path* path = nullptr;  // from RTR on; owned by the endpoint
  SendQueue send_queue;
  std::unique_ptr<ReceiveQueue> receive_queue;              // null with an SRQ
  std::unique_ptr<CompletionCounters> completion_counters;  // null: none
  const HeaderFront* front = nullptr;  // null: no header of its own
  const wire::Transport transport;     // transport bits of BTH opcodes
  // The send completion queue has overrun: no more completions.
  bool send_cq_lost = false;
  Reason first_error = Reason::kNone;
  // Why MessageReceiver did not take the last packet.
  Reason refusal = Reason::kNone;

  // --- To be handled by the queue pair. `has_findings`: any of them is set.
  bool has_findings = false;
  bool failed : 1 = false;
  bool sends_failed : 1 = false;
  bool sq_drained : 1 = false;  // raise kSqDrained
  bool data_error : 1 = false;  // enter SQD
  std::optional<QpEvent> failure_event;

 private:
  MemoryStatus Rebind(const SendWqe& wqe);
  MemoryStatus ConfigureMkey(const SendWqe& wqe);
  MemoryStatus Memcpy(const SendWqe& wqe);
  // The same as Count, while there are counters. `bytes`: see Count.
  bool CountAttached(CountedCompletion what, bool success, uint64_t bytes);
  [[gnu::noinline]] bool CountSend(CountedAs request, bool success,
                                   uint64_t bytes);
};

}  // namespace transport

#endif  // TRANSPORT_QP_QP_CORE_H_
