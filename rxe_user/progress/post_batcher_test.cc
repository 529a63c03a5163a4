#include "rxe_user/progress/post_batcher.h"

#include <gtest/gtest.h>

namespace rxe_user {
namespace {

using transport::kMicrosecond;
using transport::kMillisecond;
using transport::kNever;
using transport::Time;

// An application on a virtual clock, whose lane has packets in flight.
class PostBatcherTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Poll();
    // The batcher learns that the application posts in rows.
    for (int i = 0; i < PostBatcher::kRow - 1; ++i) EXPECT_FALSE(Post());
    EXPECT_TRUE(Post());
    Transmit();
  }
  void Poll() { app_.OnPoll(now_); }
  // True: the post waits in a batch.
  bool Post(const PostedWork& work = {1, 64, 1}) {
    const bool left = batcher_.OnPost(now_, work, app_, situation_);
    app_.OnPost(now_);
    if (!left) Transmit();
    return left;
  }
  void Transmit() { batcher_.OnTransmit(now_, 100); }

  Time now_ = transport::kSecond;
  AppActivity app_;
  PostBatcher batcher_;
  PostBatcher::Situation situation_ = {
      .may_batch = true, .lane_is_busy = true, .senders = 1};
};

TEST_F(PostBatcherTest, LeavesRowsOfPosts) {
  for (int i = 0; i < PostBatcher::kRequests - 1; ++i) EXPECT_TRUE(Post()) << i;
  EXPECT_FALSE(Post()) << "it is full";
  EXPECT_TRUE(Post());
}

TEST_F(PostBatcherTest, NotForOneThatPollsAfterEachPost) {
  Poll();
  EXPECT_TRUE(Post());  // the previous row was long enough
  Transmit();
  for (int i = 0; i < 100; ++i) {
    Poll();
    EXPECT_FALSE(Post()) << i;
  }
}

TEST_F(PostBatcherTest, NotIfTheModeDoesNotAllowIt) {
  situation_.may_batch = false;
  EXPECT_FALSE(Post());
}

TEST_F(PostBatcherTest, NotOnAnIdleLane) {
  situation_.lane_is_busy = false;
  EXPECT_TRUE(Post()) << "it has just sent";
  Transmit();
  now_ += PostBatcher::kGap;
  EXPECT_FALSE(Post());
}

// As with UD, where each send takes longer than the gap.
TEST_F(PostBatcherTest, OnAnIdleLaneForOneThatPostsAsSoonAsItMay) {
  situation_.lane_is_busy = false;
  now_ += PostBatcher::kGap;
  EXPECT_FALSE(Post());
  now_ += 2 * PostBatcher::kGap;  // what the send took
  app_.OnPostEnd(now_);
  now_ += PostBatcher::kGap - 1;
  EXPECT_TRUE(Post());
  Transmit();
  now_ += PostBatcher::kGap;
  EXPECT_FALSE(Post());
}

TEST_F(PostBatcherTest, ForOneThatLosesItsCoreAmongItsPosts) {
  for (int i = 0; i < 10; ++i) Post();
  Transmit();
  now_ += 4 * transport::kMillisecond;
  EXPECT_FALSE(Post());
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(Post()) << i;
}

TEST_F(PostBatcherTest, NotForOneThatDoesNotComeBack) {
  // The application continues posting, so its posts wait.
  for (int i = 0; i < 50; ++i) {
    now_ += kMicrosecond;
    Post();
  }
  EXPECT_TRUE(batcher_.pending());
  Transmit();
  // It pauses.
  now_ += PostBatcher::kGap;
  EXPECT_FALSE(Post());
  // The application has not polled for a long time.
  now_ += PostBatcher::kPollsSometimes;
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(Post());
}

TEST_F(PostBatcherTest, HasADeadlineFromTheFirstPostOn) {
  EXPECT_EQ(batcher_.deadline(), kNever);
  const Time deadline = now_ + PostBatcher::kDeadline;
  EXPECT_LE(PostBatcher::kDeadline, 50 * kMicrosecond);
  const uint32_t batches = batcher_.batches();
  EXPECT_TRUE(Post());
  EXPECT_EQ(batcher_.deadline(), deadline);
  now_ += kMicrosecond;
  EXPECT_TRUE(Post());
  EXPECT_EQ(batcher_.deadline(), deadline);
  EXPECT_EQ(batcher_.batches(), batches + 1);
  // The application has not polled by the deadline.
  now_ = deadline;
  Poll();
  EXPECT_FALSE(Post());
  EXPECT_EQ(batcher_.deadline(), kNever);
}

TEST_F(PostBatcherTest, TheDeadlineFollowsWhatATimerTakes) {
  batcher_.SetTimerCost(1999);
  EXPECT_EQ(batcher_.limit(), PostBatcher::kDeadline);
  batcher_.SetTimerCost(8 * kMicrosecond);
  EXPECT_EQ(batcher_.limit(), 800 * kMicrosecond);
  batcher_.SetTimerCost(kMillisecond);
  EXPECT_EQ(batcher_.limit(), PostBatcher::kMaxDeadline);
}

TEST_F(PostBatcherTest, IsFullByBytes) {
  EXPECT_TRUE(Post({1, 30 << 10, 1}));
  EXPECT_FALSE(Post({1, 30 << 10, 1}));
  EXPECT_FALSE(Post({1, 60 << 10, 1}));
}

TEST_F(PostBatcherTest, IsFullLaterForMoreQueuePairsUpToFour) {
  for (const int senders : {2, 4, 5, 100}) {
    situation_.senders = static_cast<size_t>(senders);
    const int most = PostBatcher::kRequests * std::min(senders, 4);
    for (int i = 0; i < most - 1; ++i) EXPECT_TRUE(Post()) << senders;
    EXPECT_FALSE(Post()) << senders;
  }
}

TEST_F(PostBatcherTest, EndsWithTheRequestThatIsWaitedFor) {
  for (int i = 0; i < PostBatcher::kManyUnsignaled; ++i) {
    EXPECT_TRUE(Post({1, 64, 0}));
  }
  EXPECT_FALSE(Post({1, 64, 1}));
  // A signaled request after fewer unsignaled ones does not end the batch.
  for (int i = 0; i < PostBatcher::kManyUnsignaled - 1; ++i) {
    EXPECT_TRUE(Post({1, 64, 0}));
  }
  EXPECT_TRUE(Post({1, 64, 1}));
  // Requests of one posting call count the same.
  EXPECT_TRUE(Post({15, 64, 0}));
  EXPECT_FALSE(Post({2, 64, 1}));
}

}  // namespace
}  // namespace rxe_user
