#include "transport/endpoint/target_delay.h"

#include <algorithm>

#include "gtest/gtest.h"

namespace transport {
namespace {

constexpr Time kTarget = 200 * kMicrosecond;
constexpr uint64_t kLarge = 256'000;  // bytes; the target as it is

// Round trips one behind the other.
class RoundTrips {
 public:
  TargetDelay::Verdict Take(uint64_t window, Time rtt) {
    now_ += rtt;
    return delay_.OnSample(window, rtt, now_);
  }
  // One that takes as long as it may, with a window that is used.
  uint64_t Grow(uint64_t window) {
    EXPECT_EQ(Take(window, delay_.Of(window)).window, window);
    return delay_.Increase(window);
  }

 private:
  TargetDelay delay_{kTarget};
  Time now_ = 0;
};

TEST(TargetDelayTest, IsOffWithoutATarget) {
  EXPECT_FALSE(TargetDelay().on());
  EXPECT_TRUE(TargetDelay(1).on());
}

TEST(TargetDelayTest, SmallWindowsHaveALongerTarget) {
  const TargetDelay delay(kTarget);
  EXPECT_EQ(delay.Of(1 << 20), kTarget);
  EXPECT_EQ(delay.Of(100 * 1280), kTarget);
  // (1 / sqrt(4) - 1 / 10) / (1 - 1 / 10) = 4 / 9 of the target more.
  EXPECT_NEAR(delay.Of(4 * 1280), kTarget + kTarget * 4 / 9, 1);
  EXPECT_NEAR(delay.Of(25 * 1280), kTarget + kTarget / 9, 1);
  EXPECT_EQ(delay.Of(1280), 2 * kTarget);
  EXPECT_EQ(delay.Of(TargetDelay::kLeastWindow), 2 * kTarget);
}

TEST(TargetDelayTest, ShrinksByFourFifthsOfTheExcess) {
  // A fifth of the round trip is above the target.
  EXPECT_EQ(RoundTrips().Take(kLarge, kTarget * 5 / 4).window,
            kLarge - kLarge * 4 / 25);
  EXPECT_EQ(RoundTrips().Take(kLarge, kTarget).window, kLarge);
}

TEST(TargetDelayTest, ByHalfAtMost) {
  EXPECT_EQ(RoundTrips().Take(kLarge, 3 * kTarget).window, kLarge / 2);
  EXPECT_EQ(RoundTrips().Take(kLarge, 60 * kSecond).window, kLarge / 2);
}

TEST(TargetDelayTest, OnceForWhatWasSentBeforeIt) {
  TargetDelay delay(kTarget);
  const Time judged = 10 * kTarget;
  EXPECT_EQ(delay.OnSample(kLarge, 3 * kTarget, judged).window, kLarge / 2);
  // Sent a moment before that, and not after.
  const Time late = judged + 3 * kTarget - 1;
  EXPECT_EQ(delay.OnSample(kLarge, 3 * kTarget, late).window, kLarge);
  EXPECT_EQ(delay.OnSample(kLarge, 3 * kTarget, late + 1).window, kLarge / 2);
}

TEST(TargetDelayTest, TheLeastOfARoundTripCounts) {
  TargetDelay delay(kTarget);
  const Time judged = 10 * kTarget;
  EXPECT_EQ(delay.OnSample(kLarge, kTarget, judged).window, kLarge);
  // Another queue pair's on the path, of what was sent before.
  const Time later = judged + 2 * kTarget;
  EXPECT_EQ(delay.OnSample(kLarge, kTarget, judged + kTarget - 1).window,
            kLarge);
  EXPECT_EQ(delay.OnSample(kLarge, 2 * kTarget + 1, later).window, kLarge);
  EXPECT_EQ(delay.OnSample(kLarge, 2 * kTarget, later).window, kLarge);
  // It is that one's alone.
  EXPECT_EQ(delay.OnSample(kLarge, 2 * kTarget, later + 2 * kTarget).window,
            kLarge - kLarge * 2 / 5);
}

TEST(TargetDelayTest, GrowsOnceInARoundTripBelowTheTarget) {
  TargetDelay delay(kTarget);
  EXPECT_EQ(delay.Increase(kLarge), kLarge);  // nothing is known
  delay.OnSample(kLarge, kTarget, kTarget);
  EXPECT_EQ(delay.Increase(kLarge), kLarge + TargetDelay::kMostStep);
  EXPECT_EQ(delay.Increase(kLarge), kLarge);
  delay.OnSample(kLarge, kTarget + 1, 3 * kTarget);
  EXPECT_EQ(delay.Increase(kLarge), kLarge);
}

TEST(TargetDelayTest, GrowsFasterTheLongerItStaysBelow) {
  RoundTrips trips;
  uint64_t window = kLarge;
  for (int i = 0; i < TargetDelay::kSlowRounds; ++i)
    window = trips.Grow(window);
  EXPECT_EQ(window, kLarge + TargetDelay::kSlowRounds * TargetDelay::kMostStep);
  for (uint64_t n = 1; n < 5; ++n) {
    const uint64_t before = window;
    window = trips.Grow(window);
    EXPECT_EQ(window - before,
              TargetDelay::kMostStep + n * TargetDelay::kFaster);
  }
  // But not faster and faster for ever,
  uint64_t step = 0;
  for (int i = 0; i < 1000; ++i) step = trips.Grow(kLarge) - kLarge;
  EXPECT_EQ(step, TargetDelay::kMostStep +
                      (TargetDelay::kMostRounds - TargetDelay::kSlowRounds) *
                          TargetDelay::kFaster);
  // and not after a longer one.
  trips.Take(kLarge, kTarget * 5 / 4);
  EXPECT_EQ(trips.Grow(kLarge), kLarge + TargetDelay::kMostStep);
}

TEST(TargetDelayTest, SmallWindowsGrowSlowly) {
  for (const uint64_t window : {128u, 1280u, 5120u}) {
    RoundTrips trips;
    for (int i = 0; i < 100; ++i) {
      EXPECT_EQ(trips.Grow(window) - window,
                window < 80 * 16 ? 16 : window / 80);
    }
  }
}

TEST(TargetDelayTest, SaysWhenTheTargetIsTooShortForThePath) {
  RoundTrips trips;
  uint64_t window = kLarge;
  int judged = 0;
  while (window > TargetDelay::kLeastWindow) {
    const TargetDelay::Verdict verdict = trips.Take(window, 10 * kTarget);
    EXPECT_FALSE(verdict.too_long);
    EXPECT_EQ(verdict.window,
              std::max(TargetDelay::kLeastWindow, window - window / 2));
    window = verdict.window;
    ASSERT_LT(++judged, 20);
  }
  const TargetDelay::Verdict verdict = trips.Take(window, 10 * kTarget);
  EXPECT_TRUE(verdict.too_long);
  EXPECT_EQ(verdict.window, TargetDelay::kLeastWindow);
  EXPECT_FALSE(trips.Take(window, 2 * kTarget).too_long);
}

// Notifications may have made it smaller than round trips ever do.
TEST(TargetDelayTest, NeverMakesAWindowLarger) {
  EXPECT_EQ(RoundTrips().Take(32, 10 * kTarget).window, 32u);
}

TEST(TargetDelayTest, WhatWasSentBeforeALossIsNotJudged) {
  TargetDelay delay(kTarget);
  const Time lost = 10 * kTarget;
  delay.OnSample(kLarge, kTarget, kTarget);
  delay.OnReduced(lost);
  EXPECT_EQ(delay.Increase(kLarge), kLarge);
  EXPECT_EQ(delay.OnSample(kLarge, 3 * kTarget, lost + 1).window, kLarge);
  EXPECT_EQ(delay.OnSample(kLarge, 3 * kTarget, lost + 3 * kTarget).window,
            kLarge / 2);
}

}  // namespace
}  // namespace transport
