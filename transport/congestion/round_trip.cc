#include "transport/congestion/round_trip.h"

#include <algorithm>

namespace transport {
namespace {

constexpr Time kLeastProbeTimeout = kMillisecond;
constexpr Time kProbeTimeoutWithoutSample = 4 * kMillisecond;
// Several round trips within a rack.
constexpr Time kLeastEarlyProbe = 100 * kMicrosecond;
// How far probes that were answered prolong timeouts.
constexpr int kGreatestBackoff = 8;
constexpr Time kMostBackedOff = kSecond;
// Routes change.
constexpr Time kBaseLife = 10 * kSecond;
constexpr Time kGreatestSample = 60 * kSecond;
// A round trip that outlasted the timeout counts half as much after this time.
constexpr Time kLateLife = kSecond;
// What waits longer than this does not wait for a core.
constexpr Time kGreatestLate = 250 * kMillisecond;

}  // namespace

Time RoundTrip::MeasuredTimeout() const {
  return smoothed_ == 0
             ? kProbeTimeoutWithoutSample
             : std::max(kLeastProbeTimeout, smoothed_ + 4 * variation_);
}

// Twice the late one: what was measured since the last probe may be half of
// what it took, since intervals between probes double.
Time RoundTrip::ProbeTimeout() const {
  const Time timeout = MeasuredTimeout();
  return std::max(
      {timeout, std::min(timeout << backoff_, kMostBackedOff), 2 * late_});
}

Time RoundTrip::EarlyProbeTimeout() const {
  return smoothed_ == 0
             ? kNever
             : std::max(kLeastEarlyProbe, smoothed_ + 4 * variation_);
}

void RoundTrip::OnProbesAnswered(int probes) {
  backoff_ = std::min(backoff_ + probes, kGreatestBackoff);
}

void RoundTrip::OnLateAnswer(Time least, Time now) {
  if (least <= std::max(MeasuredTimeout(), late_)) return;
  late_ = std::min(least, kGreatestLate);
  late_until_ = now + kLateLife;
}

void RoundTrip::OnSample(Time rtt, Time now) {
  rtt = std::clamp<Time>(rtt, 1, kGreatestSample);
  backoff_ = 0;
  if (late_ != 0) {
    OnLateAnswer(rtt, now);
    for (; now >= late_until_ && late_ != 0; late_until_ += kLateLife) {
      late_ /= 2;
    }
  }
  if (rtt <= base_ || now >= base_until_) {
    base_ = rtt;
    base_until_ = now + kBaseLife;
  }
  if (smoothed_ == 0) {
    smoothed_ = rtt;
    variation_ = rtt / 2;
    return;
  }
  const Time error = rtt > smoothed_ ? rtt - smoothed_ : smoothed_ - rtt;
  variation_ += (error - variation_) / 4;
  smoothed_ = std::max<Time>(1, smoothed_ + (rtt - smoothed_) / 8);
}

}  // namespace transport
