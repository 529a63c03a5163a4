// Packets beyond a gap: kept until it fills (docs/architecture.md, "Loss and
// congestion"), and one NAK for each gap (IBA vol. 1, 9.7.5.2.8).
#include "transport/rc/responder_impl.h"

namespace transport {

void Responder::Impl::OnGap(const wire::PacketView& packet, uint64_t psn) {
  ++qp.counters_.out_of_order;
  const size_t longest =
      wire::kMaxHeaderSize + mtu() + 3 + wire::kIcrcSize;  // 3 of pad
  if (psn - expected < kHoldWindow) {
    held.Insert(psn, packet.udp_payload(), longest);
  }
  ReportGap();
}

void Responder::Impl::ReportGap() {
  gap_deadline = kNever;
  if (nak_made) return;
  nak_made = true;
  nak =
      Nak{wire::MakeNakSyndrome(wire::NakCode::kPsnSequence), expected, false};
}

void Responder::Impl::OnGapTimer() {
  if (++idle_reports <= kMaxIdleReports) {
    ReportGap();
    return;
  }
  idle_reports = 0;
  gap_deadline = kNever;
  held.Clear();
}

void Responder::Impl::ExecuteHeld(Time now) {
  gap_deadline = kNever;
  while (!held.empty() && held.first_psn() <= expected) {
    if (held.first_psn() < expected) {  // a later copy overtook it
      held.PopFirst();
      continue;
    }
    wire::PacketView packet;
    wire::PacketView::Parse(held.first(), &packet);
    const MessageProgress before = message;
    executing_held = true;
    const Outcome outcome = Execute(packet, now);
    executing_held = false;
    if (outcome == Outcome::kFailed) return;  // nothing is held any more
    if (outcome == Outcome::kRefused) {
      // Whoever guesses one of the many PSNs that are held could end the queue
      // pair: only what comes when it is expected may. The peer is to say it
      // again, and if it was the peer, it will be in order.
      static_cast<MessageProgress&>(message) = before;
      held.Clear();
      ReportGap();
      return;
    }
    held.PopFirst();
    // Its sender comes again after the RNR timer; what follows waits for that.
    if (outcome == Outcome::kNotReady) return;
    idle_reports = 0;
    // Tells the sender that it need not send these again.
    ack_due = true;
  }
  if (held.empty()) {
    held.Clear();
    return;
  }
  // Another gap. A peer that goes back to the first one sends what fills this
  // one right behind: a NAK now would make it go back once more. If it does
  // not come, the next packet beyond the gap, or the timer, tells.
  gap_deadline = now + kGapPatience;
}

}  // namespace transport
