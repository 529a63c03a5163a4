// A round of a lane: receive, timers, transmit.
#include <algorithm>
#include <span>

#include "rxe_user/base/qpn.h"
#include "rxe_user/engine/lane_impl.h"
#include "rxe_user/memory/guarded_copy.h"
#include "rxe_user/progress/round_budget.h"

namespace rxe_user {

using transport::Time;

bool LaneImpl::Round(Time now, Caller caller) {
  ++counters_.rounds;
  const bool polling = caller == Caller::kPoller && mode_.is(Mode::kPolling);
  size_t received = ReceiveSome(now, caller);
  if (polling && arming_.active()) {
    arming_.OnPoll(received != 0, app_.calls());
    ApplyMode();
  }
  bool did = RunTimers(now, &received) || received != 0;
  if (port_->blocked() || endpoint_.HasTransmit()) {
    // The response to a small arrival, mostly its ACK, can share a send with
    // what the application posts next. Never left twice in a row, so that a
    // slow stream of arrivals does not delay it.
    const bool leave = polling && !left_ && received != 0 &&
                       received < BusyPoll::kBulkBytes &&
                       (acks_.OnArrival(now) || !arming_.active());
    if (!leave) {
      TransmitSome(now);
      did = true;
    }
    left_ = leave;
  }
  return did;
}

size_t LaneImpl::ReceiveSome(Time now, Caller caller) {
  const bool thorough = caller != Caller::kPoller;
  RoundBudget budget;
  bool more = true;
  while (more && !budget.spent()) {
    const std::span<const transport::GroBatch> batches =
        port_->Receive(thorough);
    if (batches.empty()) break;
    const ScopedFaultGuard guard;
    for (const transport::GroBatch& batch : batches) {
      // An empty datagram counts as well.
      budget.Charge(std::max<size_t>(batch.bytes.size(), 1));
      endpoint_.OnGroBatch(batch, now, this);
    }
    const bool bulk = budget.bytes() >= BusyPoll::kBulkBytes;
    // A poll receives again only after bulk data. A helper that the sockets
    // wake answers a single arrival first, which makes ib_read_lat 3 % faster.
    const bool answer_first = armed_ && batches.size() == 1;
    more = port_->more() && !lock_.contended() &&
           (bulk || (thorough && !answer_first));
  }
  if (budget.bytes() != 0) {
    const uint64_t dropped = port_->TakeOverflow();
    if (dropped != 0) endpoint_.OnReceiveOverflow(now, dropped);
  }
  if (raw_.load(std::memory_order_relaxed) != nullptr) {
    ReceiveFrames(now, !thorough || mode_.is(Mode::kPolling), &budget);
  }
  if (budget.bytes() != 0) futile_wakes_.OnReceived();
  return budget.bytes();
}

void LaneImpl::ReceiveFrames(Time now, bool patient, RoundBudget* budget) {
  const ScopedFaultGuard guard;
  budget->Charge(raw_.load(std::memory_order_relaxed)->Receive(now, patient));
}

// The upper bits of a queue pair number are its slot.
void LaneImpl::OnStray(const transport::Datagram& datagram, uint32_t qpn) {
  if (slot_ == nullptr || slot_->Owns(SlotOf(qpn))) return;
  ++counters_.strays_forwarded;
  slot_->Forward({datagram.source, datagram.destination, datagram.source_port,
                  datagram.traffic_class, datagram.hop_limit, datagram.bytes});
}

size_t LaneImpl::TransmitSome(Time now) {
  left_ = false;
  transmitted_ = true;
  hold_ack_until_ = 0;
  port_->Flush();
  const ScopedFaultGuard guard;
  RoundBudget budget;
  while (!budget.spent()) {
    const transport::Burst* burst = endpoint_.PollTransmit(now, port_.get());
    if (burst == nullptr) break;
    budget.Charge(burst->bytes().size());
    port_->Queue();
    if (budget.bytes() >= RoundBudget::kBytes / 4 && lock_.contended()) break;
  }
  port_->Flush();
  batcher_.OnTransmit(now, budget.bytes());
  retry_.OnTransmit(port_->must_retry(), now);
  return budget.bytes();
}

bool LaneImpl::RunTimers(Time now, size_t* received) {
  if (endpoint_.NextTimeout() > now) return false;
  *received += ReceiveSome(now, Caller::kFinisher);
  endpoint_.OnTimer(now);
  return true;
}

}  // namespace rxe_user
