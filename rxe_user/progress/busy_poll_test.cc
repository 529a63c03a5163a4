#include "rxe_user/progress/busy_poll.h"

#include <gtest/gtest.h>

namespace rxe_user {
namespace {

using transport::kMicrosecond;
using transport::kMillisecond;
using transport::Time;

constexpr size_t kBulk = BusyPoll::kBulkBytes;
constexpr Time kLong = transport::kSecond;  // time since the application polled

TEST(BusyPoll, BulkIsAwaitedWhileItsPiecesAreClose) {
  BusyPoll b;
  Time now = 0;
  EXPECT_FALSE(b.OnRound(kBulk, 0, kLong, now)) << "the first";
  now += 49 * kMicrosecond;
  EXPECT_TRUE(b.OnRound(0, kBulk, kLong, now)) << "sending counts as well";
  now += 49 * kMicrosecond;
  EXPECT_TRUE(b.OnRound(0, 0, kLong, now));
  now += kMicrosecond;
  EXPECT_FALSE(b.OnRound(0, 0, kLong, now));
  EXPECT_FALSE(b.OnRound(kBulk - 1, 0, kLong, now));
  EXPECT_FALSE(b.OnRound(0, 0, kLong, now)) << "that was not bulk";
}

TEST(BusyPoll, BulkIsNotAwaitedBesideAnApplicationThatPolls) {
  BusyPoll b;
  b.OnRound(kBulk, 0, kLong, 0);
  EXPECT_FALSE(b.OnRound(kBulk, 0, kMillisecond - 1, kMicrosecond));
  EXPECT_TRUE(b.OnRound(kBulk, 0, kMillisecond, 2 * kMicrosecond));
}

TEST(BusyPoll, TheUsersLimitHoldsForAnythingThatCameIn) {
  BusyPoll b;
  b.SetUserLimit(100 * kMicrosecond);
  EXPECT_FALSE(b.OnRound(0, 20, kLong, 0)) << "what is sent brings nothing";
  EXPECT_TRUE(b.OnRound(1, 0, kLong, 0));
  EXPECT_TRUE(b.OnRound(0, 0, 0, 99 * kMicrosecond));
  EXPECT_FALSE(b.OnRound(0, 0, kLong, 100 * kMicrosecond));
}

}  // namespace
}  // namespace rxe_user
