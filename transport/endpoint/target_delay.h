// How a sender keeps the queue before it short where no switch marks: by the
// round trip, against a target that the user knows to fit the network (Swift,
// Kumar et al., SIGCOMM 2020, 3.1 and 3.5).
//
// - A round trip is judged once what was sent after the last judgement has come
//   back, by the least sample until then: answers come in batches.
// - Above the target the window shrinks by 0.8 of the excess, by half at most.
//   Below it, it grows: slowly at first, and faster the longer it stays below.
// - Small windows have a longer target: they have many neighbours, each of
//   which adds to the queue, and who has less of the link is to get more of it.
//
// Nothing here tells a queue from a path that is longer than its target by
// nature: there the window falls to its least.
#ifndef TRANSPORT_ENDPOINT_TARGET_DELAY_H_
#define TRANSPORT_ENDPOINT_TARGET_DELAY_H_

#include <cstdint>

#include "transport/base/types.h"

namespace transport {

class TargetDelay {
 public:
  static constexpr double kShare = 0.8;  // of the excess
  static constexpr double kMost = 0.5;   // of the window
  // Windows of so many packets (of 1 KiB, as Path counts them) have the target
  // as it is, those of one or less twice that; between them it is longer by
  // 1 / sqrt(window).
  static constexpr double kPacket = 1280;  // bytes
  static constexpr double kManyPackets = 100;
  // Bytes by which a window grows in a round trip: one part in so many, within
  // bounds; and, if that is kMostStep, by kFaster more for each round trip
  // after the first of those below the target.
  static constexpr uint64_t kStepPart = 80;
  static constexpr uint64_t kLeastStep = 16;
  static constexpr uint64_t kMostStep = 128;
  static constexpr int kSlowRounds = 10;
  static constexpr int kMostRounds = 64;
  static constexpr uint64_t kFaster = 1280;
  // A packet of 1 KiB in ten round trips.
  static constexpr uint64_t kLeastWindow = 128;

  // Nanoseconds, of round trips with the queues on their way; 0: off.
  explicit TargetDelay(Time target = 0) : target_(target) {}

  bool on() const { return target_ != 0; }
  // Of a window of so many bytes; ns.
  Time Of(uint64_t window) const;

  struct Verdict {
    uint64_t window;        // what it is to be, bytes
    bool too_long = false;  // above the target, with the window at its least
  };
  // A round trip has taken `rtt`, at least 1 ns.
  Verdict OnSample(uint64_t window, Time rtt, Time now);
  // Bytes were acknowledged, of a window that was used: what it is to be.
  uint64_t Increase(uint64_t window);
  // Something else has made the window smaller.
  void OnReduced(Time now) {
    Begin(now);
    rounds_ = 0;
  }

 private:
  // Another round trip, of what is sent from `now` on.
  void Begin(Time now);

  Time target_;
  Time began_ = 0;
  Time least_ = kNever;    // sample since
  int rounds_ = 0;         // in which it grew since it was last made smaller
  bool may_grow_ = false;  // the last one was not above the target
};

}  // namespace transport

#endif  // TRANSPORT_ENDPOINT_TARGET_DELAY_H_
