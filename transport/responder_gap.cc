// Packets beyond a gap: kept until it fills (DESIGN, decision 9), and one NAK
// for each gap (IBA vol. 1, 9.7.5.2.8).
#include "transport/responder_impl.h"

namespace transport {

void Responder::Impl::OnGap(const wire::PacketView& packet, uint64_t psn) {
  ++qp.counters_.out_of_order;
  const size_t longest =
      wire::kMaxHeaderSize + mtu() + 3 + wire::kIcrcSize;  // 3 of pad
  held.Insert(psn, packet.udp_payload(), longest);
  ReportGap();
}

void Responder::Impl::ReportGap() {
  if (nak_made) return;
  nak_made = true;
  nak =
      Nak{wire::MakeNakSyndrome(wire::NakCode::kPsnSequence), expected, false};
}

void Responder::Impl::ExecuteHeld(Time now) {
  while (!held.empty() && held.first_psn() <= expected) {
    if (held.first_psn() < expected) {  // a later copy overtook it
      held.PopFirst();
      continue;
    }
    wire::PacketView packet;
    wire::PacketView::Parse(held.first(), &packet);
    const Outcome outcome = Execute(packet, now);
    if (outcome == Outcome::kFailed) return;  // nothing is held any more
    held.PopFirst();
    // Its sender comes again after the RNR timer; what follows waits for that.
    if (outcome == Outcome::kNotReady) return;
    // Tells the sender that it need not send these again.
    ack_due = true;
  }
  if (held.empty()) {
    held.Clear();
  } else {
    ReportGap();
  }
}

}  // namespace transport
