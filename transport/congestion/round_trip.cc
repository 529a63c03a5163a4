#include "transport/congestion/round_trip.h"

#include <algorithm>

namespace transport {
namespace {

constexpr Time kMinProbeTimeout = kMillisecond;
constexpr Time kProbeTimeoutWithoutSample = 4 * kMillisecond;
// Several round trips within a rack.
constexpr Time kMinEarlyProbe = 100 * kMicrosecond;
// Limits of how far answered probes prolong timeouts.
constexpr int kMaxBackoff = 8;
constexpr Time kMaxBackedOffTimeout = kSecond;
// Routes change.
constexpr Time kBaseLife = 10 * kSecond;
constexpr Time kMaxSample = 60 * kSecond;

}  // namespace

Time RoundTrip::ProbeTimeout() const {
  const Time timeout =
      smoothed_ == 0 ? kProbeTimeoutWithoutSample
                     : std::max(kMinProbeTimeout, smoothed_ + 4 * variation_);
  return std::max(timeout, std::min(timeout << backoff_, kMaxBackedOffTimeout));
}

Time RoundTrip::EarlyProbeTimeout() const {
  return smoothed_ == 0 ? kNever
                        : std::max(kMinEarlyProbe, smoothed_ + 4 * variation_);
}

void RoundTrip::OnProbesAnswered(int probes) {
  backoff_ = std::min(backoff_ + probes, kMaxBackoff);
}

void RoundTrip::OnSample(Time rtt, Time now) {
  rtt = std::clamp<Time>(rtt, 1, kMaxSample);
  backoff_ = 0;
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
