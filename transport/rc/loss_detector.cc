#include "transport/rc/loss_detector.h"

#include <algorithm>

namespace transport {
namespace {

// Reports within this time are of one loss. A shorter round trip was measured
// with made-up acknowledgements
// (RequesterStormTest.NaksOfOnePsnAfterAShortRoundTrip).
constexpr Time kMinReaction = 20 * kMicrosecond;

}  // namespace

Time LossDetector::EarlyProbeDeadline(const Path& path,
                                      const Conditions& conditions) const {
  if (early_probes_ >= kMaxEarlyProbes || probes_ > 0 ||
      probe_base_ == kNever || !conditions.may_probe_early) {
    return kNever;
  }
  const Time since = GapIsKnown(conditions.una)
                         ? std::max(probe_base_, gap_time_)
                         : probe_base_;
  const Time timeout = path.EarlyProbeTimeout(since);
  return timeout == kNever ? kNever : since + (timeout << early_probes_);
}

LossDetector::Verdict LossDetector::Judge(const Path& path,
                                          const Conditions& conditions,
                                          Time now) const {
  if (now >= AckDeadline(conditions)) return Verdict::kAckTimeout;
  if (now >= ProbeDeadline(path, conditions)) return Verdict::kProbe;
  if (now >= EarlyProbeDeadline(path, conditions)) return Verdict::kEarlyProbe;
  return Verdict::kNothing;
}

bool LossDetector::JustHandled(const Path& path, Time now) const {
  if (gap_seq_ == kNoSequence) return false;
  const Time rtt = path.smoothed_rtt();
  return now - gap_time_ <
         (rtt != 0 ? std::max(rtt, kMinReaction) : path.ProbeTimeout());
}

bool LossDetector::OnGap(const Path& path, uint64_t una, bool has_ack_timeout,
                         Time now) {
  const bool again = gap_seq_ == una;
  gap_seq_ = una;
  gap_time_ = now;
  if (again && (has_ack_timeout || now - gap_counted_ < path.ProbeTimeout())) {
    return false;
  }
  gap_counted_ = now;
  return again;
}

}  // namespace transport
