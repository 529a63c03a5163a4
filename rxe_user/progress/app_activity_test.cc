#include "rxe_user/progress/app_activity.h"

#include <gtest/gtest.h>

namespace rxe_user {
namespace {

using transport::kMicrosecond;
using transport::kMillisecond;
using transport::kSecond;

TEST(AppActivity, HasNotPolledAtFirst) {
  AppActivity app;
  EXPECT_GT(app.PollAge(0), 1000 * kSecond);
  EXPECT_GT(app.CallAge(0), 1000 * kSecond);
  EXPECT_GE(app.PollsSinceDrop(), AppActivity::kManyPolls);
}

TEST(AppActivity, PostsCountForOneThatPolls) {
  AppActivity app;
  app.OnPost(0);
  EXPECT_GT(app.CallAge(kMicrosecond), kSecond) << "it has never polled";
  app.OnPoll(0);
  app.OnPost(900 * kMicrosecond);
  EXPECT_EQ(app.CallAge(990 * kMicrosecond), 90 * kMicrosecond);
  EXPECT_EQ(app.PollAge(990 * kMicrosecond), 990 * kMicrosecond);
  app.OnPost(1010 * kMicrosecond);
  EXPECT_EQ(app.CallAge(1020 * kMicrosecond), 1020 * kMicrosecond);
}

TEST(AppActivity, ADroppedLeaseIsRestoredByManyPolls) {
  AppActivity app;
  for (int i = 0; i < 100; ++i) app.OnPoll(i);
  app.DropLease();
  EXPECT_GT(app.PollAge(100), kSecond);
  for (uint32_t i = 0; i < AppActivity::kManyPolls; ++i) {
    EXPECT_LT(app.PollsSinceDrop(), AppActivity::kManyPolls);
    app.OnPoll(200);
  }
  EXPECT_GE(app.PollsSinceDrop(), AppActivity::kManyPolls);
}

TEST(AppActivity, TakingCompletionsIsAPoll) {
  AppActivity app;
  app.RenewLease(kMillisecond);
  EXPECT_EQ(app.PollAge(kMillisecond + 5), 5);
  EXPECT_EQ(app.polls(), 1u);
  EXPECT_EQ(app.calls(), 1u);
  app.OnPost(0);
  EXPECT_EQ(app.calls(), 2u);
}

TEST(AppActivity, YieldsAfterPollingForNothing) {
  AppActivity app;
  app.OnUsefulPoll(0);
  EXPECT_FALSE(app.ShouldYield(30 * kMicrosecond));
  EXPECT_TRUE(app.ShouldYield(31 * kMicrosecond));
  // An application that posts is at work.
  app.OnPost(10 * kMicrosecond);
  app.OnPostEnd(20 * kMicrosecond);
  EXPECT_FALSE(app.ShouldYield(50 * kMicrosecond));
  EXPECT_TRUE(app.ShouldYield(51 * kMicrosecond));
}

TEST(AppActivity, TimesAreLongerOnASlowMachine) {
  AppActivity app;
  EXPECT_EQ(app.lease(), 20 * kMicrosecond);
  app.SetScale(TimeScale(5 * kMicrosecond));
  EXPECT_EQ(app.lease(), 100 * kMicrosecond);
  EXPECT_EQ(app.checked_lease(), 40 * kMicrosecond);
  app.OnUsefulPoll(0);
  EXPECT_FALSE(app.ShouldYield(150 * kMicrosecond));
  EXPECT_TRUE(app.ShouldYield(151 * kMicrosecond));
}

TEST(TimeScale, IsNeverLessThanOneAndHasAnEnd) {
  EXPECT_EQ(TimeScale()(100), 100);
  EXPECT_EQ(TimeScale(0)(100), 100);
  EXPECT_EQ(TimeScale(kMicrosecond / 2)(100), 100);
  EXPECT_EQ(TimeScale(2500)(100), 250);
  EXPECT_EQ(TimeScale(kSecond)(100), 2000);
}

}  // namespace
}  // namespace rxe_user
