#include "rxe_user/progress/polled_completions.h"

#include <gtest/gtest.h>

namespace rxe_user {
namespace {

using Next = PolledCompletions::Next;

TEST(PolledCompletions, EachSixteenthRenewsTheLease) {
  PolledCompletions t;
  for (int i = 1; i < 256; ++i) {
    EXPECT_EQ(t.OnPoll(1, false),
              i % 16 == 0 ? Next::kRenewLease : Next::kNothing)
        << i;
  }
  EXPECT_EQ(t.OnPoll(1, false), Next::kProgress);
  EXPECT_EQ(t.OnPoll(15, false), Next::kNothing);
  EXPECT_EQ(t.OnPoll(1, false), Next::kRenewLease);
}

TEST(PolledCompletions, APollThatMadeARoundBeginsAnew) {
  PolledCompletions t;
  t.OnPoll(15, false);
  EXPECT_EQ(t.OnPoll(1, true), Next::kNothing);
  for (int i = 0; i < 100; ++i) EXPECT_NE(t.OnPoll(10, true), Next::kProgress);
  EXPECT_EQ(t.OnPoll(16, true), Next::kRenewLease);
  EXPECT_EQ(t.OnPoll(256, true), Next::kProgress);
}

TEST(PolledCompletions, EmptyPollsSayNothing) {
  PolledCompletions t;
  t.OnPoll(16, false);
  EXPECT_EQ(t.OnPoll(0, false), Next::kNothing);
}

}  // namespace
}  // namespace rxe_user
