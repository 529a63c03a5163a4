// How a sender reacts to congestion notifications: DCQCN (Zhu et al., SIGCOMM
// 2015), applied to a window instead of a rate. A window makes the rate follow
// the queue by itself; DCQCN makes senders that share a queue take equal parts
// of it.
//
// - alpha estimates how congested the path is: it grows with every
//   notification, and decays in every period without one.
// - A notification reduces the window by alpha / 2 of it. The goal becomes the
//   window before that.
// - In each of the first periods without one the window comes halfway back to
//   the goal (fast recovery). Then the goal grows as well, by a little
//   (additive increase), and after some more periods by ever more (hyper
//   increase, but not for windows of a few packets).
#ifndef TRANSPORT_CONGESTION_DCQCN_H_
#define TRANSPORT_CONGESTION_DCQCN_H_

#include <algorithm>
#include <cstdint>

#include "transport/base/types.h"

namespace transport {

class Dcqcn {
 public:
  // Or a round trip, if that is longer: feedback that arrives sooner is for
  // packets sent before the last change.
  static constexpr Time kPeriod = 55 * kMicrosecond;
  // One receiver sends at most one notification in this time.
  static constexpr Time kNotificationInterval = 50 * kMicrosecond;
  static constexpr int kRecoveryPeriods = 5;
  static constexpr int kAdditivePeriods = 5;
  // Bytes by which the goal grows in a period: some 20 Mb/s for each 55 us of a
  // round trip, and ten times that for each period of hyper increase.
  static constexpr uint64_t kAdditive = 128;
  static constexpr uint64_t kHyper = 1280;
  // A window of a few packets shares its queue with many others: its goal grows
  // by the window divided by kAdditivePart, which is 16 bytes for each packet
  // that is not marked, and never by more than kAdditive. For a window of less
  // than a packet, a period is the time from one packet to the next.
  static constexpr uint64_t kAdditivePart = 80;
  static constexpr uint64_t kMinAdditive = 16;
  // A packet of 1 KiB in 40 round trips.
  static constexpr uint64_t kMinWindow = 32;
  // Without a notification for this long, DCQCN no longer governs the path.
  static constexpr Time kActive = 100 * kMillisecond;

  // Whether it governs how the window grows.
  bool active(Time now) const { return now < active_until_; }
  double alpha() const { return alpha_; }

  // A notification: returns the new window. `rtt`: the round trip, 0 if it is
  // not known.
  uint64_t Decrease(uint64_t window, Time rtt, Time now) {
    if (!active(now)) alpha_ = kFirstAlpha;
    goal_ = window;
    const auto less =
        static_cast<uint64_t>(static_cast<double>(window) * alpha_ / 2);
    Note(rtt, now);
    return std::max(kMinWindow, window - less);
  }

  // Another notification of congestion for which the window has shrunk already.
  // No effect if there was none recently.
  void Hold(Time rtt, Time now) {
    if (active(now)) Note(rtt, now);
  }

  // Bytes were acknowledged, of a window that was used: returns the new window.
  uint64_t Increase(uint64_t window, Time rtt, Time now) {
    for (int64_t n = Decay(rtt, now); n > 0; --n) {
      const uint64_t step =
          std::clamp(window / kAdditivePart, kMinAdditive, kAdditive);
      ++periods_;
      if (periods_ > kRecoveryPeriods + kAdditivePeriods && step == kAdditive) {
        goal_ += kHyper * static_cast<uint64_t>(periods_ - kRecoveryPeriods -
                                                kAdditivePeriods);
      } else if (periods_ > kRecoveryPeriods) {
        goal_ += step;
      }
      goal_ = std::max(goal_, window);
      window = (window + goal_ + 1) / 2;
    }
    return window;
  }

  // The same for a rate. At most `times` periods count, however long ago the
  // last call was. After the first periods the goal grows by `step`, and there
  // is no hyper increase, since a rate is not slowed down by the queue that it
  // makes.
  uint64_t IncreaseRate(uint64_t rate, uint64_t step, int64_t times, Time now) {
    for (int64_t n = std::min(times, Decay(0, now)); n > 0; --n) {
      if (++periods_ > kRecoveryPeriods) goal_ += step;
      goal_ = std::max(goal_, rate);
      rate = (rate + goal_ + 1) / 2;
    }
    return rate;
  }
  // Time has passed in which the window was not used: it stays as it is.
  void Pass(Time now) { Decay(0, now); }

  // A loss has shrunk the window: there is no goal to return to.
  void OnLoss(uint64_t window) { goal_ = window; }

 private:
  static constexpr double kFirstAlpha = 0.5;
  static constexpr double kGain = 1.0 / 16;
  // The most periods that one call counts, however long nothing was
  // acknowledged.
  static constexpr int64_t kMaxPeriods = 32;

  void Note(Time rtt, Time now) {
    Decay(rtt, now);
    alpha_ = (1 - kGain) * alpha_ + kGain;
    active_until_ = now + kActive;
    period_start_ = now;
    periods_ = 0;
  }

  // How many periods have passed; alpha decays in each.
  int64_t Decay(Time rtt, Time now) {
    const Time period = std::max(kPeriod, rtt);
    const int64_t passed = (now - period_start_) / period;
    period_start_ += passed * period;
    const int64_t counted = std::min(passed, kMaxPeriods);
    for (int64_t n = counted; n > 0; --n) alpha_ *= 1 - kGain;
    return counted;
  }

  double alpha_ = kFirstAlpha;
  uint64_t goal_ = 0;  // bytes
  Time active_until_ = 0;
  Time period_start_ = 0;
  int periods_ = 0;  // since the last notification
};

}  // namespace transport

#endif  // TRANSPORT_CONGESTION_DCQCN_H_
