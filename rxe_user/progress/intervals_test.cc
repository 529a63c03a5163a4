// Intervals that double.
#include <gtest/gtest.h>

#include "rxe_user/progress/check_interval.h"
#include "rxe_user/progress/round_budget.h"
#include "rxe_user/progress/send_retry.h"

namespace rxe_user {
namespace {

using transport::kMicrosecond;
using transport::kMillisecond;
using transport::kNever;
using transport::Time;

TEST(CheckInterval, DoublesUpToItsEnd) {
  CheckInterval c;
  c.Reset(TimeScale());
  for (const int us : {20, 40, 80, 160, 320, 640, 1280, 2560, 2560}) {
    EXPECT_EQ(c.value(), us * kMicrosecond);
    c.Grow(kNever);
  }
  c.Reset(TimeScale());
  EXPECT_EQ(c.value(), 20 * kMicrosecond);
}

TEST(CheckInterval, StaysNearWhileItHasTo) {
  CheckInterval c;
  c.Reset(TimeScale());
  for (int i = 0; i < 5; ++i) c.Grow(kNever);
  c.Grow(40 * kMicrosecond);
  EXPECT_EQ(c.value(), 40 * kMicrosecond);
  c.Grow(40 * kMicrosecond);
  EXPECT_EQ(c.value(), 40 * kMicrosecond);
  c.Grow(kNever);
  EXPECT_EQ(c.value(), 80 * kMicrosecond);
}

TEST(CheckInterval, IsLongerOnASlowMachineButNotForLong) {
  CheckInterval c;
  c.Reset(TimeScale(10 * kMicrosecond));
  EXPECT_EQ(c.value(), 200 * kMicrosecond);
  for (int i = 0; i < 10; ++i) c.Grow(kNever);
  EXPECT_EQ(c.value(), 5 * kMillisecond);
}

TEST(SendRetry, DoublesWhileSendsAreBlocked) {
  SendRetry retry;
  EXPECT_EQ(retry.at(), kNever);
  Time now = transport::kSecond;
  for (const int us : {50, 100, 200, 400, 800, 1600, 3200, 5000, 5000}) {
    retry.OnTransmit(true, now);
    EXPECT_EQ(retry.at(), now + us * kMicrosecond);
    // A try before at() does not postpone the next one.
    retry.OnTransmit(true, now + 1);
    EXPECT_EQ(retry.at(), now + us * kMicrosecond);
    now = retry.at();
  }
  retry.OnTransmit(false, now);
  EXPECT_EQ(retry.at(), kNever);
  retry.OnTransmit(true, now);
  EXPECT_EQ(retry.at(), now + 50 * kMicrosecond);
}

TEST(RoundBudget, EndsByBytesOrByCalls) {
  RoundBudget bytes;
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(bytes.spent());
    bytes.Charge(64 << 10);
  }
  EXPECT_TRUE(bytes.spent());
  EXPECT_EQ(bytes.bytes(), size_t{192 << 10});
  RoundBudget calls;
  for (int i = 0; i < 32; ++i) {
    EXPECT_FALSE(calls.spent());
    calls.Charge(20);
  }
  EXPECT_TRUE(calls.spent());
  EXPECT_EQ(calls.bytes(), 640u);
}

}  // namespace
}  // namespace rxe_user
