// The congestion window of one path. It grows with what is acknowledged, and
// shrinks on loss, on congestion notification (CNP) and on timeout.
//
// - It starts with what a default receive buffer holds, and grows as TCP's
//   does: by what is acknowledged up to a threshold, then by a packet for each
//   window.
// - After a CNP it follows DCQCN, until none has come for 100 ms.
// - A window that is not used does not grow: it has not been tried
//   (PathTest.AnUnusedWindowDoesNotGrow).
// - After a reduction nothing changes it for a round trip: what arrives
//   meanwhile was sent before (PathTest.LossShrinksOncePerRoundTrip).
// - A timeout may be a peer that waited for a core. If it proves to have been
//   too early, the window gets its former size back
//   (PathTest.AnEarlyTimeoutIsUndone).
#ifndef TRANSPORT_CONGESTION_CONGESTION_CONTROLLER_H_
#define TRANSPORT_CONGESTION_CONGESTION_CONTROLLER_H_

#include <algorithm>
#include <cstdint>

#include "transport/base/types.h"
#include "transport/congestion/dcqcn.h"

namespace transport {

// Windows are bytes as Path counts them. `rtt` is the smoothed round trip, ns,
// or 0. `used`: bytes that were in flight before the acknowledgement.
class CongestionController {
 public:
  static constexpr uint64_t kInitialWindow = 128 * 1024;
  // Losses do not reduce the window below this. Notifications and repeated
  // timeouts do.
  static constexpr uint64_t kMinWindow = 16 * 1024;
  static constexpr uint64_t kMaxWindow = 1024 * 1024;
  // A window of less than this may be less than a packet.
  static constexpr uint64_t kMaxPacket = 4096 + 256;

  uint64_t window() const { return window_; }
  // The time from a packet of `bytes` to the next one: at least a round trip.
  Time Interval(uint64_t bytes, Time rtt) const {
    if (bytes <= window_ || window_ >= kMaxPacket) return rtt;
    return static_cast<Time>(static_cast<uint64_t>(rtt) * bytes / window_);
  }

  // --- Inputs.
  // Part of each acknowledgement: not worth a call.
  [[gnu::always_inline]] void OnAcknowledged(uint64_t bytes, uint64_t used,
                                             Time rtt, Time now) {
    if (now < recovery_until_) return;
    if (used < window_ / 2) return;
    if (dcqcn_.active(now)) return GrowByDcqcn(bytes, rtt, now);
    if (window_ < threshold_) {
      window_ += std::min(bytes, threshold_ - window_);
    } else {
      window_before_timeout_ = 0;
      window_ += std::min(kIncrement, kIncrement * bytes / window_);
    }
    window_ = std::min(window_, kMaxWindow);
  }
  // The same, but it grows up to `max_window` only.
  void OnAcknowledgedUpTo(uint64_t max_window, uint64_t bytes, uint64_t used,
                          Time rtt, Time now) {
    if (window_ >= max_window) return;
    OnAcknowledged(bytes, used, rtt, now);
    window_ = std::min(window_, max_window);
  }
  // `bytes` were sent, which nothing will acknowledge: the window grows, but
  // only up to kInitialWindow, which receive buffers hold.
  void OnSentUnacknowledged(uint64_t bytes, Time now) {
    if (now < recovery_until_ || window_ >= kInitialWindow) return;
    window_ = std::min(window_ + kIncrement * bytes / window_, kInitialWindow);
  }
  // A packet to or from a peer that answers was lost. The window shrinks to 0.7
  // of its size, but not below `min_window`.
  void OnLoss(uint64_t min_window, Time rtt, Time now);
  // True if the notification counts. One per Dcqcn::kNotificationInterval
  // counts; it may be early by half of that, since the network does not
  // preserve intervals (PathTest.NotificationsMayComeALittleEarly).
  bool OnNotification(Time rtt, Time now);
  // A timeout during which no peer answered, or packets were lost.
  void OnTimeout(Time rtt, Time now);
  // The last timeout was too early, or not the path's fault: the window is
  // again what it was before the first in a row, unless there was another
  // reduction since.
  void UndoTimeout();

 private:
  // Congestion avoidance adds this many bytes for each window that is
  // acknowledged.
  static constexpr uint64_t kIncrement = kMaxPacket;
  // Shortest time between reductions: round trips of a spinning loopback are
  // shorter than the bursts that are lost together.
  static constexpr Time kMinRecovery = 100 * kMicrosecond;

  void GrowByDcqcn(uint64_t bytes, Time rtt, Time now);
  void BeginRecovery(Time rtt, Time now) {
    recovery_until_ = now + std::max(kMinRecovery, rtt);
  }

  uint64_t window_ = kInitialWindow;
  // Slow start ends here until a loss has shown a better threshold.
  uint64_t threshold_ = 384 * 1024;
  Time recovery_until_ = 0;             // no change before
  uint64_t window_before_timeout_ = 0;  // 0: nothing to undo
  uint64_t threshold_before_timeout_ = 0;
  // When the next notification is due if they come as fast as they may.
  Time next_notification_ = 0;
  Dcqcn dcqcn_;
};

}  // namespace transport

#endif  // TRANSPORT_CONGESTION_CONGESTION_CONTROLLER_H_
