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
// An early probe is at least so late: several round trips within a rack.
constexpr Time kLeastEarlyProbe = 100 * kMicrosecond;
// And only so long after a loss: on a path without any, silence is a peer that
// has not been scheduled.
constexpr Time kLossIsRecent = 100 * kMillisecond;
// How long the least round trip counts: routes change.
constexpr Time kBaseRttLife = 10 * kSecond;
// The rate is measured over so many round trips, and at least so long: answers
// come in batches.
constexpr Time kRateRoundTrips = 2;
constexpr Time kLeastRateInterval = 200 * kMicrosecond;
// What the network itself can hold is its rate times its least round trip. A
// loss leaves so many times that: losses that a link makes by chance are no
// sign of a queue, and filling the gaps of a window takes some round trips
// more, one for each.
constexpr uint64_t kRoundTripsInWindow = 2;
// But no more than a peer can keep behind a gap (PacketArena::kBytes).
constexpr uint64_t kMostAfterLoss = 256 * 1024;
// And only while less than one byte in so many is lost. More is no chance.
constexpr uint64_t kSeldomLost = 16;
// Over at least so many acknowledged bytes, and so many lost.
constexpr uint64_t kLossMemory = 4 * 1024 * 1024;
constexpr uint64_t kFewLost = 64 * 1024;
// A window of less than this may be less than a packet.
constexpr uint64_t kGreatestPacket = 4096 + Path::kPacketOverhead;

}  // namespace

Time Path::ProbeTimeout() const {
  const Time timeout =
      smoothed_rtt_ == 0
          ? kProbeTimeoutWithoutSample
          : std::max(kLeastProbeTimeout, smoothed_rtt_ + 4 * rtt_variation_);
  return std::max(timeout, std::min(timeout << backoff_, kMostBackedOff));
}

Time Path::EarlyProbeTimeout(Time now) const {
  if (smoothed_rtt_ == 0 || last_loss_ < 0 ||
      now - last_loss_ > kLossIsRecent) {
    return kNever;
  }
  return std::max(kLeastEarlyProbe, smoothed_rtt_ + 4 * rtt_variation_);
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

// Part of each acknowledgement: not worth a call.
[[gnu::always_inline]] inline void Path::Grow(uint64_t bytes, Time now) {
  if (now < recovery_until_) return;
  // A window that was not used has not been tried: it does not grow.
  if (in_flight_ + bytes < window_ / 2) return;
  if (dcqcn_.active(now)) return GrowByDcqcn(bytes, now);
  if (window_ < threshold_) {
    window_ += std::min(bytes, threshold_ - window_);
  } else {
    window_before_timeout_ = 0;
    window_ += std::min(kIncrement, kIncrement * bytes / window_);
  }
  window_ = std::min(window_, kGreatestWindow);
}

void Path::OnAcknowledged(uint64_t bytes, Time now) {
  last_answer_ = now;
  rate_bytes_ += bytes;
  if (now - rate_since_ >= kLeastRateInterval) MeasureRate(now);
  Grow(bytes, now);
  if (window_ < bytes) Pause(bytes, now);
}

void Path::OnAnswered(uint64_t bytes, uint64_t greatest, Time now) {
  last_answer_ = now;
  rate_bytes_ += bytes;
  if (now - rate_since_ >= kLeastRateInterval) MeasureRate(now);
  if (window_ < greatest) {
    Grow(bytes, now);
    window_ = std::min(window_, greatest);
  }
  if (window_ < bytes) Pause(bytes, now);
}

// From a packet of `bytes` to the next one, a round trip at least.
Time Path::Interval(uint64_t bytes) const {
  if (bytes <= window_ || window_ >= kGreatestPacket) return smoothed_rtt_;
  return static_cast<Time>(static_cast<uint64_t>(smoothed_rtt_) * bytes /
                           window_);
}

void Path::Pause(uint64_t bytes, Time now) {
  if (window_ >= kGreatestPacket) return;
  // More was sent while the window was larger: that was right then.
  bytes = std::min(bytes, kGreatestPacket);
  paused_until_ = std::max(now, paused_until_) +
                  std::min(Interval(bytes) - smoothed_rtt_,
                           static_cast<Time>(bytes) * kLeastRateByte);
  in_flight_ += bytes;
  held_ += bytes;
}

bool Path::EndPause(Time now) {
  // A window that has grown to hold a packet says itself when to send.
  if (now < paused_until_ && window_ < kGreatestPacket) return false;
  paused_until_ = std::min(paused_until_, now);
  in_flight_ -= held_;
  held_ = 0;
  return true;
}

void Path::MeasureRate(Time now) {
  const Time interval = now - rate_since_;
  if (interval < kRateRoundTrips * smoothed_rtt_) return;
  const uint64_t rate = rate_bytes_ * static_cast<uint64_t>(kMillisecond) /
                        static_cast<uint64_t>(interval);
  bytes_per_ms_ = rate_since_ == 0 ? rate : (3 * bytes_per_ms_ + rate) / 4;
  acknowledged_bytes_ += rate_bytes_;
  if (acknowledged_bytes_ > kLossMemory) {
    acknowledged_bytes_ /= 2;
    lost_bytes_ /= 2;
  }
  rate_bytes_ = 0;
  rate_since_ = now;
}

uint64_t Path::LeastAfterLoss() const {
  if (lost_bytes_ > kFewLost &&
      lost_bytes_ * kSeldomLost > acknowledged_bytes_) {
    return kLeastWindow;
  }
  return std::min(kRoundTripsInWindow * round_trip_bytes(), kMostAfterLoss);
}

void Path::OnRttSample(Time rtt, Time now) {
  rtt = std::clamp<Time>(rtt, 1, 60 * kSecond);
  backoff_ = 0;
  if (rtt <= base_rtt_ || now >= base_rtt_until_) {
    base_rtt_ = rtt;
    base_rtt_until_ = now + kBaseRttLife;
  }
  if (smoothed_rtt_ == 0) {
    smoothed_rtt_ = rtt;
    rtt_variation_ = rtt / 2;
  } else {
    const Time error =
        rtt > smoothed_rtt_ ? rtt - smoothed_rtt_ : smoothed_rtt_ - rtt;
    rtt_variation_ += (error - rtt_variation_) / 4;
    smoothed_rtt_ =
        std::max<Time>(1, smoothed_rtt_ + (rtt - smoothed_rtt_) / 8);
  }
}

// A call, and the last thing that its caller does: no other path saves
// registers for it.
[[gnu::noinline]] void Path::GrowByDcqcn(uint64_t bytes, Time now) {
  window_ =
      std::min(dcqcn_.Increase(window_, Interval(bytes), now), kGreatestWindow);
}

void Path::OnSentUnacknowledged(uint64_t bytes, Time now) {
  paced_until_ = std::max(paced_until_, now) +
                 static_cast<Time>(bytes * kPaceInterval / window_);
  if (now < recovery_until_ || window_ >= kInitialWindow) return;
  window_ = std::min(window_ + kIncrement * bytes / window_, kInitialWindow);
}

void Path::OnLoss(Time now) {
  last_loss_ = now;
  Reduce(std::max(window_ / 10 * 7, std::min(window_, LeastAfterLoss())), now);
}

void Path::OnLost(uint64_t bytes) { lost_bytes_ += bytes; }

bool Path::OnCongestionNotification(Time now) {
  if (now < next_notification_ - kNotificationInterval / 2) return false;
  next_notification_ =
      std::max(next_notification_, now) + kNotificationInterval;
  if (now < recovery_until_) {
    dcqcn_.Hold(smoothed_rtt_, now);
    return true;
  }
  window_before_timeout_ = 0;
  window_ = dcqcn_.Decrease(window_, smoothed_rtt_, now);
  threshold_ = window_;
  recovery_until_ = now + std::max(kLeastRecovery, smoothed_rtt_);
  return true;
}

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
  // In a row they make it one packet: there may be many others.
  const uint64_t least = window_ > kLeastWindow
                             ? kLeastWindow
                             : std::max(kGreatestPacket, window_ / 2);
  window_ = std::min(window_, least);
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
  // Notifications may have made it smaller than losses ever do.
  window_ = std::min(window_, std::max(kLeastWindow, window));
  threshold_ = window_;
  dcqcn_.OnLoss(window_);
  recovery_until_ = now + std::max(kLeastRecovery, smoothed_rtt_);
}

}  // namespace transport
