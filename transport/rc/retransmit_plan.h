// What a requester retransmits out of turn, and how much it may retransmit in
// turn.
//
// In turn means from una on, up to max (SendSequence): a replay, which moves
// nxt. Out of turn means a run of packets that leaves nxt where it is: packets
// that a peer misses while it buffers the others, or a probe.
#ifndef TRANSPORT_RC_RETRANSMIT_PLAN_H_
#define TRANSPORT_RC_RETRANSMIT_PLAN_H_

#include <algorithm>
#include <cstdint>

#include "transport/rc/send_sequence.h"

namespace transport {

// In sequence numbers of the requester.
class RetransmitPlan {
 public:
  // Retransmitted packets use up credit, and each acknowledged PSN adds some.
  // Without it each NAK in a series of successive PSNs retransmits the whole
  // window: a small packet of an attacker costs a window
  // (RequesterStormTest.NaksOfSuccessivePsns). A go-back-N peer that loses one
  // packet in twenty has each packet retransmitted once on average.
  static constexpr uint64_t kCreditPerPsn = 4;
  // At first, and at most: a window of packets of 1 KiB.
  static constexpr uint16_t kMaxCredit = 1024;
  // Packets that a replay sends without credit.
  static constexpr uint64_t kMinReplay = 4;
  // Losses mostly come in bursts. While the gap continues beyond the last run,
  // the next run is this many times as long: otherwise a gap of n packets takes
  // n round trips (RequesterNakTest.ALongGapIsFilledInLongerAndLongerRuns).
  static constexpr uint32_t kRunGrowth = 4;

  // --- Out of turn.
  bool out_of_turn() const { return next_ != kNoSequence; }
  uint64_t next() const { return next_; }
  uint64_t end() const { return end_; }
  // The last run filled a gap up to `una`, and nothing beyond it was
  // retransmitted.
  bool FilledGapAlone(uint64_t una) const { return gap_alone_ && una == end_; }
  // How many packets of a gap at `una` to send: at most `limit`, and at least
  // one.
  uint32_t GrowRun(uint64_t una, uint64_t limit) {
    run_ = una == end_ ? run_ * kRunGrowth : 1;
    run_ = static_cast<uint32_t>(
        std::min<uint64_t>(run_, std::max<uint64_t>(limit, 1)));
    return run_;
  }
  // Retransmits [first, end), as far as it is below `max`.
  void Send(uint64_t first, uint64_t end, uint64_t max) {
    next_ = first;
    end_ = std::min(end, max);
    gap_alone_ = false;
  }
  void SendGap(uint64_t first, uint64_t end, uint64_t max) {
    Send(first, end, max);
    gap_alone_ = end_ < max;
  }
  void ForgetRun() { run_ = 1; }
  // `next` comes next, if it belongs to the run. A READ or an atomic ends a
  // run: a peer that has buffered it would answer twice
  // (RequesterNakTest.ARunEndsBeforeARead).
  void ContinueAt(uint64_t next, bool is_read) {
    next_ = next < end_ && !is_read ? next : kNoSequence;
  }
  void Cancel() { next_ = kNoSequence; }
  // Everything from una on is retransmitted in turn.
  void OnRewind() {
    Cancel();
    gap_alone_ = false;
  }

  // --- In turn: credit.
  // `resent`: packets of this replay so far.
  bool HasCredit(uint64_t resent) const {
    return credit_ > 0 || resent < kMinReplay;
  }
  void TakeCredit() {
    if (credit_ > 0) --credit_;
  }
  // `psns` more are acknowledged.
  void OnProgress(uint64_t psns) {
    one_at_a_time = false;
    credit_ = static_cast<uint16_t>(
        std::min<uint64_t>(credit_ + kCreditPerPsn * psns, kMaxCredit));
  }
  // A timeout is rare enough to need none.
  void RefillCredit() { credit_ = kMaxCredit; }

  // After an RNR NAK one packet is outstanding at a time, until there is
  // progress: the peer drops what follows a request that it has no receive for.
  bool one_at_a_time = false;

 private:
  bool gap_alone_ = false;
  uint16_t credit_ = kMaxCredit;
  uint32_t run_ = 1;             // packets
  uint64_t next_ = kNoSequence;  // the next of the run; kNoSequence: none
  uint64_t end_ = kNoSequence;   // where it ends; kept when it is over
};

}  // namespace transport

#endif  // TRANSPORT_RC_RETRANSMIT_PLAN_H_
