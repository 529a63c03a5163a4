#include "transport/endpoint/path.h"

#include <algorithm>

namespace transport {
namespace {

constexpr Time kLeastProbeTimeout = kMillisecond;
constexpr Time kProbeTimeoutWithoutSample = 4 * kMillisecond;
// How far timeouts that were too short, or may have been, prolong the next
// ones.
constexpr int kGreatestBackoff = 8;
constexpr Time kMostBackedOff = kSecond;
// Congestion avoidance adds this many bytes per window that is acknowledged.
constexpr uint64_t kIncrement = 4096 + Path::kPacketOverhead;
// Shortest time between reductions: round trips of a spinning loopback are
// shorter than the bursts that are lost together.
constexpr Time kLeastRecovery = 100 * kMicrosecond;

}  // namespace

Time Path::ProbeTimeout() const {
  const Time timeout =
      smoothed_rtt_ == 0
          ? kProbeTimeoutWithoutSample
          : std::max(kLeastProbeTimeout, smoothed_rtt_ + 4 * rtt_variation_);
  return std::max(timeout, std::min(timeout << backoff_, kMostBackedOff));
}

void Path::OnProbesAnswered(int probes) {
  backoff_ = std::min(backoff_ + probes, kGreatestBackoff);
}

void Path::OnGone(uint64_t bytes) {
  in_flight_ -= std::min(bytes, in_flight_);
  opened_ = true;
}

void Path::OnGoneUnanswered(uint64_t bytes) {
  unanswered_ -= std::min(bytes, unanswered_);
  opened_ = true;
}

void Path::OnSilence(uint64_t bytes, bool news) {
  OnGone(bytes);
  unanswered_ += bytes;
  if (news) CountSilence();
}

void Path::OnAnswer(uint64_t bytes) {
  unanswered_ -= std::min(bytes, unanswered_);
  in_flight_ += bytes;
}

void Path::CountSilence() {
  if (++silences_ == 0) silences_ = 1;
}

void Path::OnAcknowledged(uint64_t bytes, Time now) {
  last_answer_ = now;
  if (now < recovery_until_) return;
  // A window that was not used has not been tried: it does not grow.
  if (in_flight_ + bytes < window_ / 2) return;
  if (window_ < threshold_) {
    window_ += std::min(bytes, threshold_ - window_);
  } else {
    window_before_timeout_ = 0;
    window_ += std::min(kIncrement, kIncrement * bytes / window_);
  }
  window_ = std::min(window_, kGreatestWindow);
}

void Path::OnRttSample(Time rtt) {
  rtt = std::clamp<Time>(rtt, 1, 60 * kSecond);
  backoff_ = 0;
  if (smoothed_rtt_ == 0) {
    smoothed_rtt_ = rtt;
    rtt_variation_ = rtt / 2;
    return;
  }
  const Time error =
      rtt > smoothed_rtt_ ? rtt - smoothed_rtt_ : smoothed_rtt_ - rtt;
  rtt_variation_ += (error - rtt_variation_) / 4;
  smoothed_rtt_ = std::max<Time>(1, smoothed_rtt_ + (rtt - smoothed_rtt_) / 8);
}

void Path::OnSentUnacknowledged(uint64_t bytes, Time now) {
  paced_until_ = std::max(paced_until_, now) +
                 static_cast<Time>(bytes * kPaceInterval / window_);
  if (now < recovery_until_ || window_ >= kInitialWindow) return;
  window_ = std::min(window_ + kIncrement * bytes / window_, kInitialWindow);
}

void Path::OnLoss(Time now) {
  last_loss_ = now;
  Reduce(window_ / 10 * 7, now);
}

void Path::OnCongestionNotification(Time now) { Reduce(window_ / 4 * 3, now); }

void Path::OnTimeout(Time now) {
  if (window_before_timeout_ == 0) {
    window_before_timeout_ = window_;
    threshold_before_timeout_ = threshold_;
  }
  // Losses of this round trip may already have shrunk the window, and further
  // timeouts find it small: what was learnt first stays slow start's goal.
  if (now >= recovery_until_ && window_ > kLeastWindow) {
    threshold_ = std::max(kLeastWindow, window_ / 2);
  }
  window_ = kLeastWindow;
  recovery_until_ = now + std::max(kLeastRecovery, smoothed_rtt_);
  CountSilence();
}

void Path::UndoTimeout() {
  if (window_before_timeout_ == 0) return;
  window_ = std::max(window_, window_before_timeout_);
  threshold_ = std::max(threshold_, threshold_before_timeout_);
  window_before_timeout_ = 0;
}

void Path::Reduce(uint64_t window, Time now) {
  if (now < recovery_until_) return;
  window_before_timeout_ = 0;
  window_ = std::max(kLeastWindow, window);
  threshold_ = window_;
  recovery_until_ = now + std::max(kLeastRecovery, smoothed_rtt_);
}

}  // namespace transport
