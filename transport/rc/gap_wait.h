// How long a responder waits before it reports a gap, since the missing packets
// may only be late.
//
// - No wait at first: on a network that keeps the order a gap is a loss.
// - A packet that was reported missing but not lost arrives twice. That shows
//   how late packets may be, and the next gap is given that time
//   (ReplayTest.EarlyNaksMakeTheNextOneWait). Without it, where one packet in
//   twenty is late, WRITE retransmitted 4 % and kept 0.18 of its goodput
//   (docs/reliability.md).
// - Not every duplicate shows that: if its ACK was lost, the first copy may be
//   a retransmission as well. Only a first copy without AckReq certainly is
//   not. Without this rule lost ACKs make the wait longer and longer
//   (sim/loss_test, LostPacketsAreNotTakenForReordered).
// - While late packets fill a gap one at a time, the next gap waits for at
//   least kFillingWait. Without it each reordered packet is reported until the
//   first of them has arrived twice (sim/loss_test,
//   PacketsReorderedByARoundTripAreRarelyRetransmitted).
#ifndef TRANSPORT_RC_GAP_WAIT_H_
#define TRANSPORT_RC_GAP_WAIT_H_

#include <algorithm>
#include <cstdint>

#include "transport/base/types.h"
#include "transport/qp/request.h"
#include "transport/rc/reorder_wait.h"
#include "wire/packet.h"
#include "wire/psn.h"

namespace transport {

// Times and intervals are kept in ms, modulo 2^16.
class GapWait {
 public:
  // How long a gap that opens now is left unreported, in ns.
  Time wait() const {
    return filling_ ? std::max(reorder_wait_.wait(), kFillingWait)
                    : reorder_wait_.wait();
  }

  // A NAK for `psn` is made.
  void OnReported(uint64_t psn, Time now) {
    const uint16_t ms = Milliseconds(now);
    const int within =
        std::max<int>(kAnsweredWithin, kAnsweredRoundTrips * round_trip_);
    if (reported_ == kNoPsn ||
        static_cast<uint16_t>(ms - reported_at_) > within) {
      reported_ = static_cast<uint32_t>(psn) & wire::kPsnMask;
      reported_at_ = ms;
    }
    reorder_wait_.OnAsked();
    filling_ = false;
  }
  bool IsReported(uint64_t psn) const {
    return (static_cast<uint32_t>(psn) & wire::kPsnMask) == reported_;
  }
  // The reported request has arrived, for the first time since. A requester
  // like ours sets AckReq on what it retransmits for a NAK, but on few first
  // transmissions. READs and atomics always have AckReq, but are seldom
  // retransmitted: if responses are lost, only the missing part is requested.
  void OnFilled(const wire::PacketView& packet, Time now) {
    const bool asks = packet.ack_req();
    const RequestKind kind = KindOf(packet.operation());
    filled_by_first_ =
        !asks || kind == RequestKind::kRead || kind == RequestKind::kAtomic;
    const uint16_t ms = SinceReport(now);
    // The next packets are expected to be as late. On a network that delivers
    // many packets in a ms, late ones arrive before a NAK is made, and no wait
    // is needed.
    filling_ = !asks && ms > 1;
    round_trip_ = std::max<uint16_t>(ms, round_trip_ - round_trip_ / 8);
  }
  // The reported request has arrived once more.
  void OnCopy(const wire::PacketView& packet, Time now) {
    reported_ = kNoPsn;
    const bool too_early = filled_by_first_ && packet.ack_req();
    reorder_wait_.OnTooEarly(too_early ? SinceReport(now) * kMillisecond : 0);
  }
  // Nothing is missing any more.
  void OnAllFilled() { filling_ = false; }

 private:
  static constexpr uint32_t kNoPsn = ~uint32_t{0};
  // A packet of 1 KiB at 4 Mb/s.
  static constexpr Time kFillingWait = 2 * kMillisecond;
  // A reported packet that was only late arrives again within this many ms, or
  // this many round trips, or never.
  static constexpr int kAnsweredWithin = 10;
  static constexpr int kAnsweredRoundTrips = 4;

  static uint16_t Milliseconds(Time now) {
    return static_cast<uint16_t>(now / kMillisecond);
  }
  uint16_t SinceReport(Time now) const {
    return static_cast<uint16_t>(Milliseconds(now) - reported_at_);
  }

  ReorderWait reorder_wait_;
  // PSN of a packet that was reported recently, and the time of the report
  // (ms). Forgotten once the packet has arrived twice.
  uint32_t reported_ = kNoPsn;
  uint16_t reported_at_ = 0;
  // From a NAK to the packet that fills the gap: a decaying maximum.
  uint16_t round_trip_ = 0;
  bool filled_by_first_ = false;  // reported_, by the original packet
  bool filling_ = false;          // by late packets, one at a time
};

}  // namespace transport

#endif  // TRANSPORT_RC_GAP_WAIT_H_
