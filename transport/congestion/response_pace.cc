#include "transport/congestion/response_pace.h"

#include <algorithm>

namespace transport {
namespace {

// In each period the goal grows by kStep, which makes rates equal, plus a part
// of the rate, which lets few senders come back to a high rate. The sum is at
// most 40 Mb/s, as in the paper.
constexpr uint64_t kStep = 16;
constexpr uint64_t kStepPart = 320;
constexpr uint64_t kMaxStep = 512;
// At most this many periods count for one packet. At low rates packets are
// further apart; then there are many senders, which must not grow faster.
constexpr int64_t kMaxPeriods = 2;

}  // namespace

Time ResponsePace::TurnOf(uint32_t qpn) const {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;  // 2^64 / golden ratio
  const uint64_t mixed =
      ((uint64_t{qpn} << 32) ^ static_cast<uint64_t>(free_at_)) * kGolden;
  return free_at_ + static_cast<Time>((mixed ^ mixed >> 32) * kGolden >> 53);
}

// At most one CNP per kNotificationInterval counts, for all queue pairs
// together, and only after something was sent at the rate that the last one has
// set.
void ResponsePace::OnNotification(Time now) {
  if (on() && now - notified_ < std::max(Dcqcn::kNotificationInterval, gap_)) {
    return;
  }
  if (!on()) free_at_ = now;
  rate_ = std::max(kMinRate, dcqcn_.Decrease(on() ? rate_ : kFullRate, 0, now));
  notified_ = now;
}

void ResponsePace::OnSent(uint64_t bytes, Time now) {
  if (!on()) return;
  if (!held_) {
    dcqcn_.Pass(now);
  } else if (dcqcn_.active(now)) {
    const uint64_t step = std::min(kStep + rate_ / kStepPart, kMaxStep);
    rate_ = dcqcn_.IncreaseRate(rate_, step, kMaxPeriods, now);
  } else {
    rate_ += bytes;
  }
  held_ = false;
  // No CNP calls for a lower rate any more.
  if (!dcqcn_.active(now) &&
      (rate_ >= kFullRate || now - free_at_ > Dcqcn::kActive)) {
    *this = ResponsePace();
    return;
  }
  gap_ = std::min(static_cast<Time>(bytes * kInterval / rate_), kMaxPause);
  free_at_ = std::max(free_at_, now - kBurst) + gap_;
}

}  // namespace transport
