// How long something that seems missing may only be late, before it is asked
// for again: nothing, until something comes that was asked for too early; then
// longer each time, up to a round trip: a packet that finds no queue and no way
// before it overtakes less. What is asked for and was lost makes it shorter:
// what overtook others may do so no longer.
//
// A round trip is what the caller has measured, in ns, or 0: then the bounds
// are those of a network whose switches reorder. An early guess costs a packet
// that is sent twice, and the window a reduction; a late one a share of the
// round trip that the repair takes anyway (RFC 8985, 6.2, has the same bounds).
#ifndef TRANSPORT_RC_REORDER_WAIT_H_
#define TRANSPORT_RC_REORDER_WAIT_H_

#include <algorithm>
#include <cstdint>

#include "transport/base/types.h"

namespace transport {

class ReorderWait {
 public:
  Time wait() const { return wait_; }  // ns

  // What was asked for has come twice: it was not lost. 0: or it was, and the
  // second copy has another reason.
  void OnTooEarly(Time round_trip) {
    const Time least = std::max(kLeast, round_trip / kSteps);
    const Time most = std::clamp(round_trip, kMost, kLongest);
    wait_ = std::max(
        wait_, static_cast<uint32_t>(std::clamp(Time{wait_} * 2, least, most)));
  }
  // Something is asked for again.
  void OnAsked() {
    wait_ -= wait_ / (wait_ > kMost ? kLongDecay : kDecay);
    if (wait_ < kLeast / 2) wait_ = 0;
  }
  void Reset() { wait_ = 0; }

 private:
  static constexpr Time kLeast = 16 * kMicrosecond;
  static constexpr Time kMost = 500 * kMicrosecond;
  // Whatever has been measured: a peer that is slow to answer is no network.
  static constexpr Time kLongest = 200 * kMillisecond;
  // The first wait is one part of the round trip in so many.
  static constexpr int kSteps = 8;
  static constexpr uint32_t kDecay = 64;
  static constexpr uint32_t kLongDecay = 16;

  uint32_t wait_ = 0;
};

}  // namespace transport

#endif  // TRANSPORT_RC_REORDER_WAIT_H_
