#include "transport/congestion/congestion_controller.h"

#include <algorithm>

namespace transport {

// A call, and in tail position, so that no other path saves registers for it.
[[gnu::noinline]] void CongestionController::GrowByDcqcn(uint64_t bytes,
                                                         Time rtt, Time now) {
  window_ =
      std::min(dcqcn_.Increase(window_, Interval(bytes, rtt), now), kMaxWindow);
}

void CongestionController::OnLoss(uint64_t min_window, Time rtt, Time now) {
  if (now < recovery_until_) return;
  const uint64_t window =
      std::max(window_ / 10 * 7, std::min(window_, min_window));
  window_before_timeout_ = 0;
  // Notifications may have made the window smaller than losses ever do.
  window_ = std::min(window_, std::max(kMinWindow, window));
  threshold_ = window_;
  dcqcn_.OnLoss(window_);
  BeginRecovery(rtt, now);
}

bool CongestionController::OnNotification(Time rtt, Time now) {
  constexpr Time kInterval = Dcqcn::kNotificationInterval;
  if (now < next_notification_ - kInterval / 2) return false;
  next_notification_ = std::max(next_notification_, now) + kInterval;
  if (now < recovery_until_) {
    dcqcn_.Hold(rtt, now);
    return true;
  }
  window_before_timeout_ = 0;
  window_ = dcqcn_.Decrease(window_, rtt, now);
  threshold_ = window_;
  BeginRecovery(rtt, now);
  return true;
}

void CongestionController::OnTimeout(Time rtt, Time now) {
  if (window_before_timeout_ == 0) {
    window_before_timeout_ = window_;
    threshold_before_timeout_ = threshold_;
  }
  // Losses of this round trip may already have shrunk the window, and further
  // timeouts find it small: the slow start threshold comes from its first size.
  if (now >= recovery_until_ && window_ > kMinWindow) {
    threshold_ = std::max(kMinWindow, window_ / 2);
  }
  // Timeouts in a row leave one packet: there may be many other senders.
  const uint64_t min_window =
      window_ > kMinWindow ? kMinWindow : std::max(kMaxPacket, window_ / 2);
  window_ = std::min(window_, min_window);
  BeginRecovery(rtt, now);
}

void CongestionController::UndoTimeout() {
  if (window_before_timeout_ == 0) return;
  window_ = std::max(window_, window_before_timeout_);
  threshold_ = std::max(threshold_, threshold_before_timeout_);
  window_before_timeout_ = 0;
}

}  // namespace transport
