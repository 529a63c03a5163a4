// Loss: replay after NAKs, gaps and timeouts, and the timers (IBA vol. 1,
// 9.7.5.1.3 and 9.9; docs/architecture.md, "Loss and congestion").
//
// Two timers watch what is outstanding. The *probe*, some round trips after the
// last progress, sends the last packet again: whether that or its ACK was lost,
// the peer's answer tells; or the first, if it is known to be missing. A second
// one in a row, and every further one, replays from una. Probes back off and
// cost no retry. The *local ACK timeout* of the queue pair (times kAckPatience)
// counts from the last progress, replays, and ends the connection when it has
// come retry_cnt + 1 times.
#include <algorithm>

#include "transport/endpoint/endpoint.h"
#include "transport/rc/requester_impl.h"

namespace transport {
namespace {

// Between probes of a queue pair that has no ACK timeout.
constexpr Time kLongestProbe = kSecond;
constexpr int kMaxBackoff = 16;

}  // namespace

void Requester::Impl::SkipAcknowledged() {
  while (cursor < frontier && cursor < acknowledged) {
    const SendWqe& wqe = queue.at(cursor_index);
    if (wqe.operation().takes_slot()) return;
    cursor = std::min(acknowledged, wqe.end());
    if (cursor == wqe.end()) ++cursor_index;
  }
}

void Requester::Impl::StopTimers() {
  timeout_base = kNever;
  probe_base = kNever;
}

void Requester::Impl::Rewind() {
  cursor = una;
  cursor_index = queue.head();
  slots.MarkReplayed();
  resend = kNone;
  rtt_seq = kNone;
  urge_ack = true;
  unasked_packets = 0;
  unasked_bytes = 0;
  SyncFlight();
  qp.endpoint_.Activate(&qp);
}

void Requester::Impl::NoteLoss(Time now) {
  if (una < lost_until) return;
  lost_until = frontier;
  path()->OnLoss(now);
}

// What gets lost mostly is a packet train, or several.
void Requester::Impl::ResendGap() {
  constexpr uint32_t kGrowth = 4;
  const uint64_t limit = path()->window() / 2 / PacketCost();
  resend_run = una == resend_end ? resend_run * kGrowth : 1;
  resend_run = std::min<uint64_t>(resend_run, std::max<uint64_t>(limit, 1));
  Resend(una, una + resend_run);
}

void Requester::Impl::Resend(uint64_t first, uint64_t end) {
  resend = first;
  resend_end = std::min(end, frontier);
  rtt_seq = kNone;
  qp.endpoint_.Activate(&qp);
}

void Requester::Impl::ResendOne(uint64_t seq) {
  const Slots::Slot* slot = slots.Find(seq);
  resend_run = 1;
  Resend(slot != nullptr ? slot->first : seq, seq + 1);
}

// A READ or an atomic ends a run: the peer, which keeps it, would answer twice.
void Requester::Impl::ContinueResend(uint64_t next) {
  resend = next < resend_end && slots.Find(next) == nullptr ? next : kNone;
}

// One reaction per loss and round trip: everything that was on its way when the
// first signal came tells the same.
bool Requester::Impl::JustHandled(Time now) const {
  if (gap_seq == kNone) return false;
  const Time rtt = path()->smoothed_rtt();
  return now - gap_time < (rtt != 0 ? rtt : path()->ProbeTimeout());
}

void Requester::Impl::OnGap(Time now, bool by_ack) {
  if (!outstanding()) return;  // about to be sent again
  if ((by_ack || gap_seq == una) && JustHandled(now)) return;
  gap_seq = una;
  gap_time = now;
  NoteLoss(now);
  Rewind();
}

void Requester::Impl::OnSequenceNak(Time now) {
  if (!outstanding()) return;
  if (gap_seq == una && JustHandled(now)) return;
  gap_seq = una;
  gap_time = now;
  NoteLoss(now);
  if (peer_keeps && cursor == frontier) {
    ResendGap();
    return;
  }
  if (nak_seq == kNone || una > nak_seq) {
    nak_seq = una;
    nak_frontier = frontier;
    replayed_to = una;
  }
  Rewind();
}

void Requester::Impl::Collapse(Time now) {
  peer_keeps = false;
  collapsed = true;
  // What the window has left is for those whose peers answer.
  qp.endpoint_.EndTurn(&qp);
  path()->OnTimeout(now);
}

void Requester::Impl::OnAckTimeout(Time now) {
  ++qp.counters_.timeouts;
  if (retries >= qp.attributes().retry_cnt) {
    Fail(fatal_seq != kNone ? fatal_status : WcStatus::kRetryExceeded, now);
    return;
  }
  ++retries;
  Collapse(now);
  Rewind();
  StopTimers();  // until it is sent
}

void Requester::Impl::OnProbe(Time now) {
  ++qp.counters_.probes;
  ++probes;
  probe_base = now;
  if (fatal_seq != kNone) {
    Fail(fatal_status, now);
    return;
  }
  const bool waits_for_answer = queue.at(queue.head()).operation().takes_slot();
  if (probes > 1) Collapse(now);
  if (probes > 1 || waits_for_answer || failed_index != kNone) {
    Rewind();
    return;
  }
  // A peer that has reported a gap is silent until that is filled.
  ResendOne(gap_seq == una ? una : cursor - 1);
}

Time Requester::Impl::AckDeadline() const {
  const Time timeout = wire::AckTimeoutNanos(qp.attributes().timeout);
  if (timeout == 0 || timeout_base == kNever) return kNever;
  return timeout_base + kAckPatience * timeout;
}

// When the interval has grown past the ACK timeout, that comes first and
// replays as well as a probe does.
Time Requester::Impl::ProbeDeadline() const {
  if (probe_base == kNever) return kNever;
  Time interval = path()->ProbeTimeout() << std::min(probes, kMaxBackoff);
  if (qp.attributes().timeout == 0)
    interval = std::min(interval, kLongestProbe);
  return probe_base + interval;
}

Time Requester::Impl::NextTimeout() const {
  if (!running) return kNever;
  if (rnr_until != kNever) return rnr_until;
  if (!outstanding()) return kNever;
  return std::min(AckDeadline(), ProbeDeadline());
}

void Requester::Impl::OnTimer(Time now) {
  if (rnr_until != kNever) {
    if (now >= rnr_until) rnr_until = kNever;
    return;
  }
  if (!outstanding()) return;
  if (now >= AckDeadline()) {
    OnAckTimeout(now);
  } else if (now >= ProbeDeadline()) {
    OnProbe(now);
  }
}

}  // namespace transport
