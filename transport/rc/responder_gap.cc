// Packets beyond a gap: kept until it fills
// (docs/design/loss-and-congestion.md), and one NAK for each gap (IBA vol.
// 1, 9.7.5.2.8).
#include <algorithm>

#include "transport/rc/responder.h"

namespace transport {
namespace {

uint16_t Milliseconds(Time now) {
  return static_cast<uint16_t>(now / kMillisecond);
}

}  // namespace

bool Responder::OnGap(const wire::PacketView& packet, uint64_t psn, Time now) {
  if (psn - expected_ >= kWindow) {
    ++core_.counters.dropped_window;
    return false;
  }
  ++core_.counters.out_of_order;
  const Time wait = GapWait();
  if (wait == 0) {
    ReportGap(now);
  } else if (nak_made_ == NakMade::kNone) {
    // From when the gap was noticed: kGapTimeout may have been running.
    gap_deadline_ = std::min(gap_deadline_, now + wait);
  }
  if (psn - expected_ < kKeepWindow) Keep(packet, psn, now);
  return true;
}

// What a requester like ours sends again for a NAK asks for an ACK, what it
// sends first mostly does not. READs and atomics always do, but are seldom sent
// twice: of what is lost of their answers, a part is asked for.
void Responder::OnReportedGapFilled(const wire::PacketView& packet, Time now) {
  const RequestKind kind = KindOf(packet.operation());
  filled_by_first_ = !packet.bth().ack_req || kind == RequestKind::kRead ||
                     kind == RequestKind::kAtomic;
  const auto ms = static_cast<uint16_t>(Milliseconds(now) - reported_at_);
  // The next packets are as late: no NAK for each. (Where many of them come in
  // a ms, they come before that is made.)
  filling_ = !packet.bth().ack_req && ms > 1;
  nak_round_trip_ =
      std::max<uint16_t>(ms, nak_round_trip_ - nak_round_trip_ / 8);
}

// If it was sent again for the NAK, that was too early: it was not lost but
// overtaken, and the copy has taken a round trip. But both may have been sent
// again, the second one since the ACK for the first was lost.
void Responder::OnReportedGapCopy(const wire::PacketView& packet, Time now) {
  reported_gap_ = kNoPsn;
  const auto ms = static_cast<uint16_t>(Milliseconds(now) - reported_at_);
  const bool too_early = filled_by_first_ && packet.bth().ack_req;
  reorder_wait_.OnTooEarly(too_early ? ms * kMillisecond : 0);
}

// Who sends one packet ahead of the peer's own has it kept, and executed in
// that one's place, unless the peer's own comes while it is kept. Then nobody
// can say which one is the peer's, and it has to send it again.
void Responder::Keep(const wire::PacketView& packet, uint64_t psn, Time now) {
  const size_t longest =
      wire::kMaxHeaderSize + mtu() + 3 + wire::kIcrcSize;  // 3 of pad
  switch (out_of_order_.Insert(psn, packet.udp_payload(), longest)) {
    case OutOfOrderPackets::Inserted::kKept:
      if (nak_made_ != NakMade::kNone) gap_deadline_ = now + kKeepTime;
      break;
    case OutOfOrderPackets::Inserted::kConflict:
      ++core_.counters.dropped_conflict;
      break;
    case OutOfOrderPackets::Inserted::kCopy:
      // Who asks so about what is kept has not heard of the gap. After an RNR
      // NAK there is none: what was kept comes again with what was refused.
      if (packet.bth().ack_req && nak_made_ == NakMade::kSequence) {
        nak_made_ = NakMade::kNone;
        ReportGap(now);
      }
      break;
    case OutOfOrderPackets::Inserted::kNoRoom:
      break;
  }
}

void Responder::ReportGap(Time now) {
  if (nak_made_ != NakMade::kNone) return;
  gap_deadline_ = out_of_order_.unused() ? kNever : now + kKeepTime;
  nak_made_ = NakMade::kSequence;
  const uint16_t ms = Milliseconds(now);
  const int within =
      std::max<int>(kAnsweredWithin, kAnsweredRoundTrips * nak_round_trip_);
  if (reported_gap_ == kNoPsn ||
      static_cast<uint16_t>(ms - reported_at_) > within) {
    reported_gap_ = static_cast<uint32_t>(expected_) & wire::kPsnMask;
    reported_at_ = ms;
  }
  reorder_wait_.OnAsked();
  filling_ = false;
  nak_ =
      Nak{expected_, wire::MakeNakSyndrome(wire::NakCode::kPsnSequence), false};
}

void Responder::OnGapTimer(Time now) {
  if (nak_made_ == NakMade::kNone && ++idle_reports_ <= kMaxIdleReports) {
    ReportGap(now);
  } else {
    GiveUpKept();
  }
}

void Responder::GiveUpKept() {
  core_.counters.dropped_held += static_cast<uint32_t>(out_of_order_.size());
  idle_reports_ = 0;
  ForgetOutOfOrder();
}

void Responder::ForgetOutOfOrder() {
  out_of_order_.Clear();
  gap_deadline_ = kNever;
}

void Responder::ExecuteKept(Time now) {
  while (!out_of_order_.empty() && out_of_order_.first_psn() <= expected_) {
    if (out_of_order_.first_psn() < expected_) {  // a later copy overtook it
      out_of_order_.PopFirst();
      continue;
    }
    wire::PacketView packet;
    wire::PacketView::Parse(out_of_order_.first(), &packet);
    const MessageReceiver::Progress before = receiver_.progress();
    executing_kept_ = true;
    const Outcome outcome = Execute(packet, now);
    executing_kept_ = false;
    if (outcome == Outcome::kFailed) return;  // nothing is held any more
    if (outcome == Outcome::kRefused) {
      // Whoever guesses one of the many PSNs that are held could end the queue
      // pair: only what comes when it is expected may. The peer is to say it
      // again, and if it was the peer, it will be in order.
      receiver_.Restore(before);
      out_of_order_.Clear();
      ReportGap(now);
      return;
    }
    out_of_order_.PopFirst();
    // Its sender comes again after the RNR timer; what follows waits for that.
    if (outcome == Outcome::kNotReady) {
      gap_deadline_ = now + kKeepTime;
      return;
    }
    idle_reports_ = 0;
    // Tells the sender that it need not send these again.
    ack_due_ = true;
  }
  if (out_of_order_.empty()) {
    out_of_order_.Clear();
    filling_ = false;
    return;
  }
  // Another gap. A peer that goes back to the first one sends what fills this
  // one right behind: a NAK now would make it go back once more. If it does
  // not come, the next packet beyond the gap, or the timer, tells.
  gap_deadline_ = now + std::max(kGapTimeout, GapWait());
}

}  // namespace transport
