#include "transport/rc/responder.h"

#include "transport/qp/receive_queue.h"
#include "transport/rc/responder_impl.h"
#include "wire/psn.h"

namespace transport {

Responder::Responder(QueuePair& qp) : impl_(std::make_unique<Impl>(qp)) {}
Responder::~Responder() = default;

void Responder::Start(Time) {
  Reset();
  impl_->expected = (uint64_t{1} << 32) + impl_->attributes().rq_psn;
  impl_->resources.assign(impl_->attributes().max_dest_rd_atomic, Resource{});
}

void Responder::Reset() {
  Impl& r = *impl_;
  r.msn = 0;
  r.nak_made = false;
  r.message = Message{};
  r.held.Clear();
  r.gap_deadline = kNever;
  r.idle_reports = 0;
  r.ForgetResponses();
  r.nak.reset();
  r.ack_due = false;
  r.repeated_ack.reset();
  r.last_wqe_reported = false;
}

void Responder::Impl::ForgetResponses() {
  first_resource = next_resource = first_pending = 0;
  resources.clear();
}

void Responder::ResizeResources() {
  Impl& r = *impl_;
  const size_t size = r.attributes().max_dest_rd_atomic;
  std::vector<Resource> resized(size);
  const uint64_t kept =
      std::min<uint64_t>(size, r.next_resource - r.first_resource);
  for (uint64_t n = r.next_resource - kept; n < r.next_resource; ++n) {
    resized[n % size] = r.resources[n % r.resources.size()];
  }
  r.first_resource = r.next_resource - kept;
  r.first_pending = std::max(r.first_pending, r.first_resource);
  r.resources = std::move(resized);
}

void Responder::Flush(Time now) {
  Impl& r = *impl_;
  r.held.Clear();
  r.gap_deadline = kNever;
  r.idle_reports = 0;
  // After a failure of our own the responses that precede its NAK still go
  // out; after a failure of another's making only what is already executed is
  // acknowledged, if no READ response would have to come first.
  const bool last_word = r.nak && r.nak->fatal;
  if (!last_word) {
    if (r.NextPending() != nullptr) r.ack_due = false;
    r.nak.reset();
    r.ForgetResponses();
  }
  Completion flushed;
  flushed.status = WcStatus::kFlushed;
  flushed.opcode = WcOpcode::kReceive;
  flushed.qpn = r.qp.qpn();
  flushed.time = now;
  CompletionSink* cq = r.qp.config_.recv_cq;
  r.message.kind = Message::Kind::kNone;
  if (r.message.has_receive) {
    r.message.has_receive = false;
    flushed.wr_id = r.message.receive.wr_id;
    cq->Push(flushed);
  }
  ReceiveQueue* queue = r.qp.receive_queue_.get();
  while (queue != nullptr && queue->Pop(&r.message.receive)) {
    flushed.wr_id = r.message.receive.wr_id;
    cq->Push(flushed);
  }
  if (r.qp.config_.srq != nullptr && !r.last_wqe_reported) {
    r.last_wqe_reported = true;
    r.qp.RaiseEvent(QpEvent::kLastWqeReached);
  }
}

uint64_t Responder::Impl::Extend(uint32_t psn) const {
  const auto low = static_cast<uint32_t>(expected & wire::kPsnMask);
  return expected + static_cast<int64_t>(wire::PsnDiff(psn, low));
}

void Responder::OnRequest(const Received& received, Time now) {
  Impl& r = *impl_;
  const wire::PacketView& packet = *received.packet;
  const uint64_t psn = r.Extend(packet.bth().psn);
  if (psn < r.expected) {
    r.OnDuplicate(packet, psn);
  } else if (psn > r.expected) {
    r.OnGap(packet, psn);
  } else if (r.Execute(packet, now) == Impl::Outcome::kExecuted) {
    r.ExecuteHeld(now);
  }
}

void Responder::OnTimer(Time now) {
  if (now >= impl_->gap_deadline) impl_->OnGapTimer();
}

Time Responder::NextTimeout() const { return impl_->gap_deadline; }

bool Responder::Transmit(Time now, Burst* burst, bool answers_only) {
  return impl_->Transmit(now, burst, answers_only);
}

Responder::Output Responder::output() const { return impl_->output(); }

}  // namespace transport
