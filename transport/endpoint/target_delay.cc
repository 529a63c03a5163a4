#include "transport/endpoint/target_delay.h"

#include <algorithm>
#include <cmath>

namespace transport {

Time TargetDelay::Of(uint64_t window) const {
  const auto part = [](double packets) { return 1 / std::sqrt(packets); };
  const double longer =
      (part(static_cast<double>(window) / kPacket) - part(kManyPackets)) /
      (1 - part(kManyPackets));
  return target_ + static_cast<Time>(static_cast<double>(target_) *
                                     std::clamp(longer, 0.0, 1.0));
}

void TargetDelay::Begin(Time now) {
  began_ = now;
  least_ = kNever;
  may_grow_ = false;
}

TargetDelay::Verdict TargetDelay::OnSample(uint64_t window, Time rtt,
                                           Time now) {
  least_ = std::min(least_, rtt);
  if (now - rtt < began_) return {window};
  const Time least = least_;
  const Time target = Of(window);
  Begin(now);
  may_grow_ = least <= target;
  if (may_grow_) return {window};
  rounds_ = 0;
  const double excess =
      static_cast<double>(least - target) / static_cast<double>(least);
  const auto less = static_cast<uint64_t>(static_cast<double>(window) *
                                          std::min(kShare * excess, kMost));
  return {.window = std::min(window, std::max(kLeastWindow, window - less)),
          .too_long = window <= kLeastWindow};
}

uint64_t TargetDelay::Increase(uint64_t window) {
  if (!may_grow_) return window;
  may_grow_ = false;
  rounds_ = std::min(rounds_ + 1, kMostRounds);
  const uint64_t step = std::clamp(window / kStepPart, kLeastStep, kMostStep);
  if (step < kMostStep || rounds_ <= kSlowRounds) return window + step;
  return window + step + kFaster * static_cast<uint64_t>(rounds_ - kSlowRounds);
}

}  // namespace transport
