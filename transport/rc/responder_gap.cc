// Packets beyond a gap: buffered until it fills
// (docs/design/loss-and-congestion.md), and one NAK for each gap (IBA vol. 1,
// 9.7.5.2.8).
#include <algorithm>

#include "transport/rc/responder.h"

namespace transport {

bool Responder::OnGap(const wire::PacketView& packet, uint64_t psn, Time now) {
  if (psn - expected_ >= kWindow) {
    ++core_.counters.dropped_window;
    return false;
  }
  ++core_.counters.out_of_order;
  const Time wait = gap_wait_.wait();
  if (wait == 0) {
    ReportGap(now);
  } else if (gap_.reported == GapNak::kNone) {
    // Counted from when the gap was noticed: kGapTimeout may be running
    // already.
    gap_.deadline = std::min(gap_.deadline, now + wait);
  }
  if (psn - expected_ < kBufferWindow) Buffer(packet, psn, now);
  return true;
}

// A packet that an attacker sends ahead of the peer's own is buffered, and
// executed in its place, unless the peer's own arrives while it is buffered.
// Then it is unknown which one is the peer's: both are dropped, and the peer
// has to retransmit (ForgedRequestTest.TwoPacketsWithOnePsn).
void Responder::Buffer(const wire::PacketView& packet, uint64_t psn, Time now) {
  const size_t longest =
      wire::kMaxHeaderSize + mtu() + 3 + wire::kIcrcSize;  // 3 of pad
  switch (out_of_order_.Insert(psn, packet.udp_payload(), longest)) {
    case OutOfOrderPackets::Inserted::kBuffered:
      if (gap_.reported != GapNak::kNone) gap_.deadline = now + kBufferTime;
      break;
    case OutOfOrderPackets::Inserted::kConflict:
      ++core_.counters.dropped_conflict;
      break;
    case OutOfOrderPackets::Inserted::kCopy:
      // A peer that asks for an ACK of a buffered packet has not got the NAK.
      // After an RNR NAK nothing is missing: buffered packets arrive again with
      // the one that was refused.
      if (packet.ack_req() && gap_.reported == GapNak::kSequence) {
        gap_.reported = GapNak::kNone;
        ReportGap(now);
      }
      break;
    case OutOfOrderPackets::Inserted::kFull:
      break;
  }
}

void Responder::ReportGap(Time now) {
  if (gap_.reported != GapNak::kNone) return;
  gap_.deadline = out_of_order_.unused() ? kNever : now + kBufferTime;
  gap_.reported = GapNak::kSequence;
  gap_wait_.OnReported(expected_, now);
  owed_.nak = {.psn = expected_,
               .syndrome = wire::MakeNakSyndrome(wire::NakCode::kPsnSequence)};
}

void Responder::OnGapTimer(Time now) {
  if (gap_.reported == GapNak::kNone &&
      ++gap_.idle_reports <= kMaxIdleReports) {
    ReportGap(now);
  } else {
    DropBuffered();
  }
}

void Responder::DropBuffered() {
  core_.counters.dropped_held += static_cast<uint32_t>(out_of_order_.size());
  gap_.idle_reports = 0;
  ForgetOutOfOrder();
}

void Responder::ForgetOutOfOrder() {
  out_of_order_.Clear();
  gap_.deadline = kNever;
}

void Responder::ExecuteBuffered(Time now) {
  while (!out_of_order_.empty() && out_of_order_.first_psn() <= expected_) {
    if (out_of_order_.first_psn() < expected_) {  // a later copy overtook it
      out_of_order_.PopFirst();
      continue;
    }
    wire::PacketView packet;
    wire::PacketView::Parse(out_of_order_.first(), &packet);
    const MessageReceiver::Progress before = receiver_.progress();
    executing_buffered_ = true;
    const Outcome outcome = Execute(packet, now);
    executing_buffered_ = false;
    if (outcome == Outcome::kFailed) return;  // nothing is buffered
    if (outcome == Outcome::kRefused) {
      // Only a packet that arrives when it is expected may fail the queue pair:
      // otherwise an attacker could do so by guessing one of the many PSNs that
      // are buffered. The packet is reported as missing; the peer sends its own
      // again, in order.
      receiver_.Restore(before);
      out_of_order_.Clear();
      ReportGap(now);
      return;
    }
    out_of_order_.PopFirst();
    // Its sender retries after the RNR timer; packets behind it wait for that.
    if (outcome == Outcome::kNotReady) {
      gap_.deadline = now + kBufferTime;
      return;
    }
    gap_.idle_reports = 0;
    // Tells the peer that it need not send these again.
    owed_.due = true;
  }
  if (out_of_order_.empty()) {
    out_of_order_.Clear();
    gap_wait_.OnAllFilled();
    return;
  }
  // Another gap. A peer that goes back to the first one is about to send what
  // fills this one: a NAK now would make it go back once more
  // (TwoGapsTest.PeerGoesBackToTheFirst). If it does not arrive, the next
  // packet beyond the gap, or the timer, causes a NAK.
  gap_.deadline = now + std::max(kGapTimeout, gap_wait_.wait());
}

}  // namespace transport
