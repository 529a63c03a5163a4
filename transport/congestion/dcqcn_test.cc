#include "transport/congestion/dcqcn.h"

#include "gtest/gtest.h"

namespace transport {
namespace {

constexpr uint64_t kWindow = 100'000;

TEST(DcqcnTest, GovernsAfterANotificationOnly) {
  Dcqcn dcqcn;
  EXPECT_FALSE(dcqcn.active(0));
  dcqcn.Decrease(kWindow, 0, 0);
  EXPECT_TRUE(dcqcn.active(Dcqcn::kActive - 1));
  EXPECT_FALSE(dcqcn.active(Dcqcn::kActive));
}

TEST(DcqcnTest, TheFirstNotificationTakesAQuarter) {
  Dcqcn dcqcn;
  EXPECT_EQ(dcqcn.Decrease(kWindow, 0, 0), kWindow * 3 / 4);
}

TEST(DcqcnTest, ManyTakeHalfEach) {
  Dcqcn dcqcn;
  for (int i = 0; i < 100; ++i) dcqcn.Decrease(kWindow, 0, i * kMicrosecond);
  EXPECT_NEAR(dcqcn.Decrease(kWindow, 0, 100 * kMicrosecond), kWindow / 2, 200);
}

TEST(DcqcnTest, RareOnesTakeLittle) {
  Dcqcn dcqcn;
  Time now = 0;
  for (int i = 0; i < 100; ++i) {
    dcqcn.Decrease(kWindow, 0, now);
    now += 20 * Dcqcn::kPeriod;
  }
  EXPECT_GT(dcqcn.Decrease(kWindow, 0, now), kWindow * 9 / 10);
}

TEST(DcqcnTest, NeverBelowTheMinimum) {
  Dcqcn dcqcn;
  uint64_t window = kWindow;
  for (int i = 0; i < 100; ++i) window = dcqcn.Decrease(window, 0, i);
  EXPECT_EQ(window, Dcqcn::kMinWindow);
}

TEST(DcqcnTest, RecoversFastThenSlowlyThenFasterAndFaster) {
  Dcqcn dcqcn;
  uint64_t window = dcqcn.Decrease(kWindow, 0, 0);
  Time now = 0;
  for (int i = 0; i < Dcqcn::kRecoveryPeriods; ++i) {
    const uint64_t missing = kWindow - window;
    window = dcqcn.Increase(window, 0, now += Dcqcn::kPeriod);
    EXPECT_NEAR(kWindow - window, missing / 2, 1);
  }
  EXPECT_EQ(dcqcn.Increase(window, 0, now + Dcqcn::kPeriod - 1), window);
  for (int i = 0; i < Dcqcn::kAdditivePeriods; ++i) {
    window = dcqcn.Increase(window, 0, now += Dcqcn::kPeriod);
  }
  EXPECT_GT(window, kWindow);
  EXPECT_LE(window, kWindow + Dcqcn::kAdditivePeriods * Dcqcn::kAdditive);
  const uint64_t before = window;
  window = dcqcn.Increase(window, 0, now += 10 * Dcqcn::kPeriod);
  EXPECT_GT(window, before + 9 * Dcqcn::kHyper);
}

TEST(DcqcnTest, ANotificationKeepsItFromRecovering) {
  Dcqcn dcqcn;
  const uint64_t window = dcqcn.Decrease(kWindow, 0, 0);
  const double alpha = dcqcn.alpha();
  dcqcn.Hold(0, Dcqcn::kPeriod - 1);
  EXPECT_GT(dcqcn.alpha(), alpha);
  EXPECT_EQ(dcqcn.Increase(window, 0, 2 * Dcqcn::kPeriod - 2), window);
  EXPECT_GT(dcqcn.Increase(window, 0, 2 * Dcqcn::kPeriod - 1), window);
}

TEST(DcqcnTest, ALongRoundTripIsAPeriod) {
  Dcqcn dcqcn;
  const uint64_t window = dcqcn.Decrease(kWindow, 10 * Dcqcn::kPeriod, 0);
  EXPECT_EQ(
      dcqcn.Increase(window, 10 * Dcqcn::kPeriod, 10 * Dcqcn::kPeriod - 1),
      window);
  EXPECT_GT(dcqcn.Increase(window, 10 * Dcqcn::kPeriod, 10 * Dcqcn::kPeriod),
            window);
}

TEST(DcqcnTest, ALossForgetsTheGoal) {
  Dcqcn dcqcn;
  dcqcn.Decrease(kWindow, 0, 0);
  dcqcn.OnLoss(kWindow / 2);
  EXPECT_EQ(dcqcn.Increase(kWindow / 2, 0, 3 * Dcqcn::kPeriod), kWindow / 2);
}

}  // namespace
}  // namespace transport
