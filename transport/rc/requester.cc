#include "transport/rc/requester.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "transport/endpoint/endpoint.h"
#include "transport/rc/requester_impl.h"

namespace transport {

void Slots::Allocate(uint32_t capacity) {
  assert(empty());
  head_ = 0;
  if (capacity == capacity_) return;
  slots_ = std::make_unique<Slot[]>(capacity);
  capacity_ = capacity;
}

const Slots::Slot* Slots::Find(uint64_t seq) const {
  for (uint32_t i = 0; i < size_; ++i) {
    const Slot& slot = slots_[(head_ + i) % capacity_];
    if (seq >= slot.first && seq < slot.end) return &slot;
  }
  return nullptr;
}

Slots::Slot* Slots::Find(uint64_t seq) {
  return const_cast<Slot*>(std::as_const(*this).Find(seq));
}

void Slots::Push(uint64_t first, uint64_t end) {
  assert(!full());
  slots_[(head_ + size_) % capacity_] = {.first = first, .end = end};
  ++size_;
}

void Slots::PopFront() {
  assert(!empty());
  head_ = (head_ + 1) % capacity_;
  --size_;
}

void Slots::MarkReplayed() {
  for (uint32_t i = 0; i < size_; ++i) {
    slots_[(head_ + i) % capacity_].replayed = true;
  }
}

Requester::Impl::Impl(QueuePair& qp) : qp(qp), queue(qp.config().capacity) {}

int Requester::Impl::Post(const SendRequest& request, Time now) {
  if (const int error = queue.Push(request)) return error;
  if (qp.state() == QpState::kErr || qp.state() == QpState::kSqe) {
    Flush(now);
  } else if (running) {
    Settle(now);
  }
  return 0;
}

void Requester::Impl::Start() {
  mtu = qp.attributes().path_mtu;
  initial_psn = qp.attributes().sq_psn;
  slots.Allocate(qp.attributes().max_rd_atomic);
  running = true;
}

void Requester::Impl::Stop() {
  if (flight > 0) {
    path()->OnGone(flight);
    flight = 0;
    qp.endpoint_.WindowOpened(path());
  }
  running = draining = drain_reported = peer_keeps = false;
  urge_ack = trial = collapsed = false;
  begun = cursor_index = queue.head();
  una = cursor = frontier = acknowledged = next_cost = 0;
  resend = resend_end = failed_index = fatal_seq = kNone;
  nak_seq = gap_seq = rtt_seq = kNone;
  resend_run = 1;
  lost_until = 0;
  nak_frontier = replayed_to = credit_seq = 0;
  messages = credit_limit = 0;
  credit_limited = false;
  unasked_packets = 0;
  unasked_bytes = 0;
  slots.Clear();
  StopTimers();
  rnr_until = kNever;
  probes = retries = rnr_retries = 0;
}

void Requester::Impl::Flush(Time now) {
  if (flushing) return;  // posted by the sink that is told of a flush
  flushing = true;
  Stop();
  while (!queue.empty()) {
    const uint64_t index = queue.head();
    Complete(index, WcStatus::kFlushed, now);
  }
  begun = cursor_index = queue.head();
  flushing = false;
}

void Requester::Impl::Complete(uint64_t index, WcStatus status, Time now) {
  assert(index == queue.head());
  const SendWqe& wqe = queue.at(index);
  const SendOperation& operation = wqe.operation();
  const bool success = status == WcStatus::kSuccess;
  const bool report =
      !success || qp.config().signal_all || (wqe.flags & kSendSignaled) != 0;
  Completion completion;
  completion.wr_id = wqe.wr_id;
  completion.status = status;
  completion.opcode = operation.wc_opcode;
  completion.qpn = qp.qpn();
  completion.time = now;
  if (success) {
    completion.byte_len = operation.kind == SendKind::kRead
                              ? wqe.length
                              : operation.response_bytes;
  }
  // The sink may post, so the slot of this one must be free by now.
  queue.Pop();
  if (!report || cq_lost) return;
  if (!qp.config().send_cq->Push(completion)) cq_lost = true;
}

void Requester::Impl::Fail(WcStatus status, Time now) {
  Complete(queue.head(), status, now);
  qp.EnterError(now);
}

void Requester::Impl::Settle(Time now) {
  if (busy) return;
  busy = true;
  SettleOnce(now);
  busy = false;
}

void Requester::Impl::SettleOnce(Time now) {
  while (running) {
    if (cq_lost) {
      qp.EnterError(now);
      return;
    }
    const uint64_t head = queue.head();
    if (fatal_seq != kNone && una == fatal_seq) {
      Fail(fatal_status, now);
      return;
    }
    if (failed_index == head) {
      Fail(failed_status, now);
      return;
    }
    if (draining || queue.empty()) break;
    const SendWqe& wqe = queue.at(head);
    if (wqe.operation().kind != SendKind::kLocal) break;
    // LOCAL_INV: it has waited to be the oldest, and nothing after it has
    // begun.
    assert(head == begun);
    const PdId pd = qp.config().pd;
    const MemoryStatus status =
        qp.config().memory->Invalidate(wqe.imm_be_or_rkey, pd, qp.qpn());
    if (status != MemoryStatus::kOk) {
      Fail(WcStatus::kMwBindError, now);
      return;
    }
    begun = cursor_index = head + 1;
    Complete(head, WcStatus::kSuccess, now);
  }
  if (running && Drained() && !drain_reported) {
    drain_reported = true;
    if (qp.attributes().en_sqd_async_notify && qp.config().events != nullptr) {
      qp.config().events->OnQpEvent(qp, QpEvent::kSqDrained);
    }
  }
}

Requester::Requester(QueuePair& qp) : impl_(std::make_unique<Impl>(qp)) {}

Requester::~Requester() {
  assert(impl_->flight == 0);  // the queue pair has called Reset
}

int Requester::Post(const SendRequest& request, Time now) {
  return impl_->Post(request, now);
}

int Requester::Check(const SendRequest& request) const {
  return impl_->queue.Check(request);
}

uint32_t Requester::room() const {
  return static_cast<uint32_t>(impl_->queue.room());
}

void Requester::Start(Time now) {
  impl_->Start();
  impl_->Settle(now);
}

void Requester::Reset() {
  impl_->queue.Clear();
  impl_->Stop();
  impl_->cq_lost = false;
}

void Requester::Flush(Time now) { impl_->Flush(now); }

void Requester::Drain(Time now) {
  impl_->draining = true;
  impl_->drain_reported = false;
  impl_->Settle(now);
}

void Requester::Resume(Time now) {
  impl_->draining = false;
  if (impl_->slots.empty()) {
    impl_->slots.Allocate(impl_->qp.attributes().max_rd_atomic);
  }
  impl_->Settle(now);
}

bool Requester::drained() const { return impl_->Drained(); }

void Requester::OnResponse(const Received& received, Time now) {
  if (!impl_->running) return;
  impl_->busy = true;
  impl_->OnResponse(received, now);
  impl_->busy = false;
  impl_->Settle(now);
}

void Requester::OnCongestionNotification(Time now) {
  if (impl_->path() != nullptr) impl_->path()->OnCongestionNotification(now);
}

void Requester::OnTimer(Time now) {
  if (!impl_->running) return;
  impl_->busy = true;
  impl_->OnTimer(now);
  impl_->busy = false;
  impl_->Settle(now);
}

bool Requester::Transmit(Time now, Burst* burst) {
  return impl_->Transmit(now, burst);
}

bool Requester::HasTransmit(Time now) const {
  Impl::Item item;
  return impl_->Decide(now, &item) != Impl::Next::kNothing;
}

Time Requester::NextTimeout() const { return impl_->NextTimeout(); }

}  // namespace transport
