#include "transport/endpoint/path.h"

#include <algorithm>

namespace transport {
namespace {

constexpr Time kLeastProbeTimeout = kMillisecond;
constexpr Time kProbeTimeoutWithoutSample = 4 * kMillisecond;
// Limit of the backoff by early timeouts and ambiguous probes.
constexpr int kGreatestBackoff = 8;
constexpr Time kMostBackedOff = kSecond;
// Congestion avoidance adds this many bytes per acknowledged window.
constexpr uint64_t kIncrement = 4096 + Path::kPacketOverhead;
// Minimum time between reductions. Round trips of a busy-polling loopback are
// shorter than bursts that are lost together.
constexpr Time kLeastRecovery = 100 * kMicrosecond;
// Minimum delay of an early probe: several round trips within a rack.
constexpr Time kLeastEarlyProbe = 100 * kMicrosecond;
// How long after a loss early probes are used. On a path without loss, a silent
// peer has probably been descheduled.
constexpr Time kLossIsRecent = 100 * kMillisecond;
// Lifetime of the minimum round trip: routes change.
constexpr Time kBaseRttLife = 10 * kSecond;
// Minimum interval of rate measurement, in round trips and in ns: ACKs come in
// batches.
constexpr Time kRateRoundTrips = 2;
constexpr Time kLeastRateInterval = 200 * kMicrosecond;
// A loss leaves this many bandwidth-delay products in the window. Random losses
// of a link do not indicate a queue, and repairing each gap takes a further
// round trip.
constexpr uint64_t kRoundTripsInWindow = 2;
// Upper bound of that, in bytes: what a peer can buffer out of order
// (PacketArena::kBytes).
constexpr uint64_t kMostAfterLoss = 256 * 1024;
// The rule applies while less than one byte in 16 is lost: more is congestion.
constexpr uint64_t kSeldomLost = 16;
// Minimum bytes for this ratio: acknowledged, and lost.
constexpr uint64_t kLossMemory = 4 * 1024 * 1024;
constexpr uint64_t kFewLost = 64 * 1024;
// A smaller window may be less than a packet.
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

// Inline: part of processing each ACK.
[[gnu::always_inline]] inline void Path::Grow(uint64_t bytes, Time now) {
  if (now < recovery_until_) return;
  // A window that was not used is untested and does not grow.
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

// Time from one packet of `bytes` to the next, at least a round trip.
Time Path::Interval(uint64_t bytes) const {
  if (bytes <= window_ || window_ >= kGreatestPacket) return smoothed_rtt_;
  return static_cast<Time>(static_cast<uint64_t>(smoothed_rtt_) * bytes /
                           window_);
}

void Path::Pause(uint64_t bytes, Time now) {
  if (window_ >= kGreatestPacket) return;
  // More may have been sent while the window was larger.
  bytes = std::min(bytes, kGreatestPacket);
  paused_until_ = std::max(now, paused_until_) +
                  std::min(Interval(bytes) - smoothed_rtt_,
                           static_cast<Time>(bytes) * kLeastRateByte);
  in_flight_ += bytes;
  held_ += bytes;
}

bool Path::EndPause(Time now) {
  // A window of at least a packet needs no pause.
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

// Not inline, and a tail call: the fast path of the caller need not save
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
  // The first value stays slow start's target: losses of this round trip may
  // already have shrunk the window, and further timeouts find it small.
  if (now >= recovery_until_ && window_ > kLeastWindow) {
    threshold_ = std::max(kLeastWindow, window_ / 2);
  }
  // Timeouts in a row reduce it to one packet: many senders may share the
  // bottleneck.
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
  // CNPs may already have reduced it below the minimum for losses.
  window_ = std::min(window_, std::max(kLeastWindow, window));
  threshold_ = window_;
  dcqcn_.OnLoss(window_);
  recovery_until_ = now + std::max(kLeastRecovery, smoothed_rtt_);
}

}  // namespace transport
