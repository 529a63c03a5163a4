// How long a responder leaves a gap unreported, since what is missing may only
// be late.
//
// - No wait at first: on a network that keeps the order a gap is a loss.
// - What was retransmitted for a NAK, and was not lost, arrives twice. That
//   teaches how late packets may be; the next gap is given that time
//   (ReplayTest.EarlyNaksMakeTheNextOneWait). Without it, where one packet in
//   twenty is late, WRITE sent 4 % twice and kept 0.18 of its goodput
//   (docs/reliability.md).
// - Not every second copy teaches: the first one may have been retransmitted as
//   well, when its ACK was lost. Only a first copy that did not ask for an ACK
//   was certainly not retransmitted. Without this rule lost ACKs make the wait
//   longer and longer (sim/loss_test, LostPacketsAreNotTakenForReordered).
// - While a gap fills by late packets, one at a time, the next gap waits for
//   kFillingWait at least. Without it each reordered packet is
//   reported, until the first has come twice (sim/loss_test,
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

// Moments and intervals are kept in ms, modulo 2^16.
class GapWait {
 public:
  // How long the gap that opens now is left unreported. ns.
  Time wait() const {
    return filling_ ? std::max(reorder_wait_.wait(), kFillingWait)
                    : reorder_wait_.wait();
  }

  // A NAK of `psn` is made.
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
  // The request that was reported has arrived, the first time since. What a
  // requester like ours retransmits for a NAK asks for an ACK; what it sends
  // first mostly does not. READs and atomics always ask, but are seldom sent
  // twice: of what is lost of their answers, a part is asked for.
  void OnFilled(const wire::PacketView& packet, Time now) {
    const bool asks = packet.bth().ack_req;
    const RequestKind kind = KindOf(packet.operation());
    filled_by_first_ =
        !asks || kind == RequestKind::kRead || kind == RequestKind::kAtomic;
    const uint16_t ms = SinceReport(now);
    // The next packets are as late. Where many of them arrive in a ms, they
    // arrive before a NAK is made.
    filling_ = !asks && ms > 1;
    round_trip_ = std::max<uint16_t>(ms, round_trip_ - round_trip_ / 8);
  }
  // It has arrived once more.
  void OnCopy(const wire::PacketView& packet, Time now) {
    reported_ = kNoPsn;
    const bool too_early = filled_by_first_ && packet.bth().ack_req;
    reorder_wait_.OnTooEarly(too_early ? SinceReport(now) * kMillisecond : 0);
  }
  // Nothing is missing any more.
  void OnAllFilled() { filling_ = false; }

 private:
  static constexpr uint32_t kNoPsn = ~uint32_t{0};
  // A packet of 1 KiB at 4 Mb/s.
  static constexpr Time kFillingWait = 2 * kMillisecond;
  // A packet that was reported though it was only late comes again within this
  // many ms, or round trips, or never.
  static constexpr int kAnsweredWithin = 10;
  static constexpr int kAnsweredRoundTrips = 4;

  static uint16_t Milliseconds(Time now) {
    return static_cast<uint16_t>(now / kMillisecond);
  }
  uint16_t SinceReport(Time now) const {
    return static_cast<uint16_t>(Milliseconds(now) - reported_at_);
  }

  ReorderWait reorder_wait_;
  // PSN of one that was reported lately, until it has arrived twice; and when
  // that was.
  uint32_t reported_ = kNoPsn;
  uint16_t reported_at_ = 0;
  // From a NAK to what fills the gap: the longest of the last ones.
  uint16_t round_trip_ = 0;
  bool filled_by_first_ = false;  // reported_, not by what was retransmitted
  bool filling_ = false;          // by late packets, one at a time
};

}  // namespace transport

#endif  // TRANSPORT_RC_GAP_WAIT_H_
