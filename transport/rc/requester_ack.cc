// What responses tell a requester (IBA vol. 1, 9.7.5.2): ACKs, NAKs, credits.
#include <algorithm>
#include <optional>

#include "transport/endpoint/endpoint.h"
#include "transport/rc/requester_impl.h"

namespace transport {
namespace {

// How a NAK that ends the connection ends its work request; nothing for those
// that do not, and for reserved codes.
std::optional<WcStatus> FatalStatus(wire::NakCode code) {
  switch (code) {
    case wire::NakCode::kInvalidRequest:
    case wire::NakCode::kInvalidRd:
      return WcStatus::kRemoteInvalidRequest;
    case wire::NakCode::kRemoteAccess:
      return WcStatus::kRemoteAccessError;
    case wire::NakCode::kRemoteOperational:
      return WcStatus::kRemoteOperationalError;
    case wire::NakCode::kPsnSequence:
      break;
  }
  return std::nullopt;
}

constexpr uint8_t kRnrRetryForEver = 7;

}  // namespace

void Requester::Impl::OnResponse(const Received& received, Time now) {
  const wire::PacketView& packet = *received.packet;
  const int64_t seq = SeqOf(packet.bth().psn);
  if (seq >= static_cast<int64_t>(frontier)) {  // ghost
    ++qp.counters_.dropped_window;
    return;
  }
  const bool explicit_ack = packet.operation() == wire::Operation::kAcknowledge;
  if (seq < static_cast<int64_t>(una)) {  // stale
    // The last ACK may come again with more credits.
    if (explicit_ack && seq + 1 == static_cast<int64_t>(una) && seq >= 0) {
      UpdateCredits(static_cast<uint64_t>(seq), packet.aeth());
    }
    return;
  }
  const auto known = static_cast<uint64_t>(seq);
  switch (packet.operation()) {
    case wire::Operation::kAcknowledge:
      OnAcknowledge(known, packet.aeth(), now);
      break;
    case wire::Operation::kAtomicAcknowledge:
      OnAtomicResponse(known, packet, now);
      break;
    case wire::Operation::kReadResponseFirst:
    case wire::Operation::kReadResponseMiddle:
    case wire::Operation::kReadResponseLast:
    case wire::Operation::kReadResponseOnly:
      OnReadResponse(known, packet, now);
      break;
    default:
      break;
  }
}

void Requester::Impl::OnAcknowledge(uint64_t seq, const wire::Aeth& aeth,
                                    Time now) {
  const uint8_t value = wire::AethValueOf(aeth.syndrome);
  switch (wire::AethKindOf(aeth.syndrome)) {
    case wire::AethKind::kAck:
      UpdateCredits(seq, aeth);
      Acknowledge(seq + 1, now);
      if (una <= seq) OnGap(now, /*by_ack=*/true);
      break;
    case wire::AethKind::kRnrNak:
      OnRnrNak(seq, value, now);
      break;
    case wire::AethKind::kNak:
      OnNak(seq, wire::NakCodeOf(aeth.syndrome), now);
      break;
    case wire::AethKind::kReserved:
      break;
  }
}

void Requester::Impl::OnNak(uint64_t seq, wire::NakCode code, Time now) {
  const std::optional<WcStatus> fatal = FatalStatus(code);
  if (!fatal && code != wire::NakCode::kPsnSequence) return;  // reserved
  ++qp.counters_.naks_received;
  Acknowledge(seq, now);
  const bool answered = una == seq;
  if (!fatal) {
    answered ? OnSequenceNak(now) : OnGap(now, /*by_ack=*/true);
  } else if (answered) {
    Fail(*fatal, now);
  } else {
    // Responses of READs before it were lost. The peer may no longer answer:
    // the next probe ends the waiting.
    fatal_seq = seq;
    fatal_status = *fatal;
    OnGap(now, /*by_ack=*/true);
  }
}

void Requester::Impl::OnRnrNak(uint64_t seq, uint8_t timer, Time now) {
  ++qp.counters_.rnr_naks_received;
  Acknowledge(seq, now);
  if (una < seq) {
    OnGap(now, /*by_ack=*/true);
    return;
  }
  if (!outstanding()) return;  // not sent again since the last one
  const uint8_t limit = qp.attributes().rnr_retry;
  if (limit != kRnrRetryForEver && rnr_retries >= limit) {
    Fail(WcStatus::kRnrRetryExceeded, now);
    return;
  }
  if (limit != kRnrRetryForEver) ++rnr_retries;
  Rewind();
  StopTimers();
  probes = 0;
  retries = 0;
  trial = true;
  rnr_until = now + wire::RnrTimerNanos(timer);
}

void Requester::Impl::UpdateCredits(uint64_t seq, const wire::Aeth& aeth) {
  if (wire::AethKindOf(aeth.syndrome) != wire::AethKind::kAck) return;
  if (seq < credit_seq) return;
  credit_seq = seq;
  const uint8_t code = wire::AethValueOf(aeth.syndrome);
  credit_limited = code != wire::kCreditNone;
  credit_limit = credit_limited
                     ? (aeth.msn + wire::CreditCount(code)) & wire::kPsnMask
                     : 0;
}

// Something that was not sent again since the NAK and is acknowledged: the peer
// has kept it.
void Requester::Impl::LearnFromAck(uint64_t until) {
  if (nak_seq == kNone) return;
  if (until > nak_seq + 1 && until > replayed_to && until <= nak_frontier) {
    peer_keeps = true;
  }
}

void Requester::Impl::Acknowledge(uint64_t until, Time now) {
  LearnFromAck(until);
  acknowledged = std::max(acknowledged, until);
  Proceed(now);
}

void Requester::Impl::Proceed(Time now) {
  const uint64_t to = slots.empty()
                          ? acknowledged
                          : std::min(acknowledged, slots.front().first);
  if (to > una) AdvanceTo(to, now);
  SkipAcknowledged();
  SyncFlight();
}

void Requester::Impl::AdvanceTo(uint64_t to, Time now) {
  if (collapsed) {
    // Packets that were not sent again have arrived: the peer was slow, nothing
    // was lost.
    if (to > cursor) path()->UndoTimeout();
    collapsed = false;
  }
  const uint64_t cost_before = CostBeforeAt(queue.head(), una);
  const uint64_t cost_after = CostBefore(queue.at(IndexOf(to - 1)), to);
  if (probes > 0) path()->OnProbesAnswered(probes);
  probes = 0;
  retries = 0;
  rnr_retries = 0;
  rnr_until = kNever;
  trial = false;
  acknowledged = std::max(acknowledged, to);
  while (!slots.empty() && slots.front().end <= to) slots.PopFront();
  while (queue.head() < begun) {
    const uint64_t head = queue.head();
    const SendWqe& wqe = queue.at(head);
    if (wqe.end() > to) break;
    if (head == failed_index) failed_index = kNone;  // it had arrived before
    una = wqe.end();
    if (cursor_index <= head) {
      cursor = una;
      cursor_index = head + 1;
    }
    Complete(head, WcStatus::kSuccess, now);
  }
  una = to;
  if (cursor < una) cursor = una;  // in the oldest work request
  if (resend != kNone && resend < una) ContinueResend(una);
  if (fatal_seq != kNone && fatal_seq < una) fatal_seq = kNone;
  timeout_base = outstanding() ? now : kNever;
  probe_base = timeout_base;
  if (rtt_seq != kNone && una > rtt_seq) {
    path()->OnRttSample(now - rtt_sent);
    rtt_seq = kNone;
  }
  SyncFlight();
  path()->OnAcknowledged(cost_after - cost_before, now);
}

}  // namespace transport
