#include "transport/congestion/path.h"

#include <algorithm>

namespace transport {

static_assert(CongestionController::kMaxPacket == 4096 + Path::kPacketOverhead);

void Path::OnAcknowledged(uint64_t bytes, Time now) {
  last_answer_ = now;
  rate_.OnAcknowledged(bytes, smoothed_rtt(), now);
  controller_.OnAcknowledged(bytes, flight_.answered() + bytes, smoothed_rtt(),
                             now);
  if (window() < bytes) Pause(bytes, now);
}

void Path::OnAnswered(uint64_t bytes, uint64_t max_window, Time now) {
  last_answer_ = now;
  rate_.OnAcknowledged(bytes, smoothed_rtt(), now);
  controller_.OnAcknowledgedUpTo(max_window, bytes, flight_.answered() + bytes,
                                 smoothed_rtt(), now);
  if (window() < bytes) Pause(bytes, now);
}

void Path::OnSentUnacknowledged(uint64_t bytes, Time now) {
  paced_until_ = std::max(paced_until_, now) +
                 static_cast<Time>(bytes * kPaceInterval / window());
  controller_.OnSentUnacknowledged(bytes, now);
}

void Path::Pause(uint64_t bytes, Time now) {
  if (window() >= CongestionController::kMaxPacket) return;
  // More was sent while the window was larger, and was permitted then
  // (PathTest.APauseIsForOnePacketAndEndsWhenTheWindowHoldsOne).
  bytes = std::min(bytes, CongestionController::kMaxPacket);
  const Time lasts =
      std::min(controller_.Interval(bytes, smoothed_rtt()) - smoothed_rtt(),
               static_cast<Time>(bytes) * kMinRateByte);
  flight_.Hold(bytes, lasts, now);
}

bool Path::EndPause(Time now) {
  if (now < paused_until() && window() < CongestionController::kMaxPacket) {
    return false;
  }
  flight_.Release(now);
  return true;
}

// Losses by chance on a link are no sign of a queue, and shrinking the window
// for each of them leaves the link idle (at 1 % loss WRITE kept 0.34 of its
// goodput). So twice what the network itself holds is left: filling the gaps of
// a window takes some more round trips, one for each. It is no more than a peer
// can buffer beyond a gap (PacketArena::kBytes), and applies only while little
// is lost (PathTest.LossLeavesTwoBandwidthDelayProducts, HeavyLossLeavesLess).
uint64_t Path::MinWindowAfterLoss() const {
  constexpr uint64_t kRoundTrips = 2;
  constexpr uint64_t kMaxAfterLoss = 256 * 1024;
  if (rate_.HasHeavyLoss()) return kMinWindow;
  return std::min(kRoundTrips * round_trip_bytes(), kMaxAfterLoss);
}

void Path::OnLoss(Time now) {
  last_loss_ = now;
  controller_.OnLoss(MinWindowAfterLoss(), smoothed_rtt(), now);
}

}  // namespace transport
