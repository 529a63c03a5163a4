// How long to wait for a missing packet that may only be late, before it is
// requested again.
//
// - Zero at first. It grows each time that a packet was requested too early, up
//   to a round trip: packets are hardly ever later than that.
// - It shrinks with each request, back to zero when the network no longer
//   reorders.
//
// The caller passes the round trip that it has measured, in ns, or 0: then the
// bounds are those of a network whose switches reorder. Requesting too early
// costs a packet that is sent twice, and a reduction of the window. Requesting
// late costs a part of the round trip that the repair takes anyway (RFC
// 8985, 6.2, has the same bounds).
#ifndef TRANSPORT_RC_REORDER_WAIT_H_
#define TRANSPORT_RC_REORDER_WAIT_H_

#include <algorithm>
#include <cstdint>

#include "transport/base/types.h"

namespace transport {

class ReorderWait {
 public:
  Time wait() const { return wait_; }  // ns

  // A packet was requested again and has arrived twice: it was not lost.
  // `round_trip`: 0 if it may have been lost after all, and the second copy has
  // another cause.
  void OnTooEarly(Time round_trip) {
    const Time max = std::clamp(round_trip, kMinBound, kMaxRoundTrip);
    const Time min = std::clamp(round_trip / kSteps, kMinWait, max);
    wait_ = std::max(
        wait_, static_cast<uint32_t>(std::clamp(Time{wait_} * 2, min, max)));
  }
  // Something is requested again.
  void OnAsked() {
    wait_ -= wait_ / (wait_ > kMinBound ? kLongDecay : kDecay);
    if (wait_ < kMinWait / 2) wait_ = 0;
  }
  void Reset() { wait_ = 0; }

 private:
  static constexpr Time kMinWait = 16 * kMicrosecond;
  // The bound of the wait if the round trip is shorter, or unknown.
  static constexpr Time kMinBound = 500 * kMicrosecond;
  // The bound if the round trip is longer: a slow peer is not a slow network.
  static constexpr Time kMaxRoundTrip = 200 * kMillisecond;
  // The first wait is the round trip divided by this.
  static constexpr int kSteps = 8;
  static constexpr uint32_t kDecay = 64;
  static constexpr uint32_t kLongDecay = 16;

  uint32_t wait_ = 0;
};

}  // namespace transport

#endif  // TRANSPORT_RC_REORDER_WAIT_H_
