#include "rxe_user/objects/completion_queue.h"

#include <poll.h>

#include <cerrno>
#include <vector>

#include "gtest/gtest.h"
#include "rxe_user/objects/fake_engine.h"

namespace rxe_user {
namespace {

using transport::Completion;

class CompletionQueueTest : public testing::Test {
 protected:
  CompletionQueueTest() {
    EXPECT_EQ(channel_.Open(), 0);
    EXPECT_EQ(async_.Open(), 0);
  }
  CompletionQueue::Config Config(uint32_t capacity) {
    CompletionQueue::Config config;
    config.capacity = capacity;
    config.channel = &channel_;
    config.async = &async_;
    config.element = this;
    config.error_event = 77;
    return config;
  }
  static bool Add(CompletionQueue& cq, uint64_t id, bool solicited = false,
                  transport::WcStatus status = transport::WcStatus::kSuccess) {
    Completion completion;
    completion.wr_id = id;
    completion.solicited = solicited;
    completion.status = status;
    return cq.Push(completion);
  }
  static std::vector<uint64_t> Drain(CompletionQueue& cq, int count = 1000) {
    std::vector<uint64_t> ids;
    cq.Poll(count, [&](int i, const Completion& c) {
      EXPECT_EQ(static_cast<size_t>(i), ids.size());
      ids.push_back(c.wr_id);
    });
    return ids;
  }
  static bool Waits(const EventQueue& queue) {
    pollfd p = {queue.fd(), POLLIN, 0};
    return poll(&p, 1, 0) == 1;
  }

  using Ids = std::vector<uint64_t>;
  FakeEngine engine_;
  EventQueue channel_, async_;
};

TEST_F(CompletionQueueTest, FirstInFirstOutAroundTheRing) {
  CompletionQueue cq(engine_, Config(4));
  for (uint64_t i = 0; i < 20; i += 3) {
    for (uint64_t j = 0; j < 3; ++j) ASSERT_TRUE(Add(cq, i + j));
    EXPECT_EQ(Drain(cq, 2), (Ids{i, i + 1}));
    EXPECT_EQ(Drain(cq, 2), Ids{i + 2});
  }
  EXPECT_EQ(engine_.progressed, 0);  // the queue was never empty
  EXPECT_TRUE(Drain(cq).empty());
  EXPECT_EQ(engine_.progressed, 1);
}

TEST_F(CompletionQueueTest, ProgressMayFillIt) {
  CompletionQueue cq(engine_, Config(4));
  engine_.on_progress = [&] { Add(cq, 5); };
  EXPECT_EQ(Drain(cq), Ids{5});
}

// Polls that find completions make no progress. The engine is told at intervals
// that the application is active.
TEST_F(CompletionQueueTest, ManyPollsRenewTheLease) {
  CompletionQueue cq(engine_, Config(100));
  for (uint64_t i = 0; i < 40; ++i) ASSERT_TRUE(Add(cq, i));
  EXPECT_EQ(Drain(cq, 15).size(), 15u);
  EXPECT_EQ(engine_.leases_renewed, 0);
  EXPECT_EQ(Drain(cq, 1), Ids{15});
  EXPECT_EQ(engine_.leases_renewed, 1);
  EXPECT_EQ(Drain(cq, 24).size(), 24u);
  EXPECT_EQ(engine_.leases_renewed, 2);
  EXPECT_EQ(engine_.progressed, 0);
}

// Without this, there would be no progress while completions are queued.
TEST_F(CompletionQueueTest, VeryManyPollsMakeProgress) {
  CompletionQueue cq(engine_, Config(1000));
  for (uint64_t i = 0; i < 600; ++i) ASSERT_TRUE(Add(cq, i));
  for (int i = 0; i < 255; ++i) Drain(cq, 1);
  EXPECT_EQ(engine_.progressed, 0);
  Drain(cq, 1);
  EXPECT_EQ(engine_.progressed, 1);
  Drain(cq, 344);
  EXPECT_EQ(engine_.progressed, 2);
}

// A poll that found none has made progress.
TEST_F(CompletionQueueTest, AnEmptyPollRestartsTheCount) {
  CompletionQueue cq(engine_, Config(100));
  for (int rounds = 0; rounds < 20; ++rounds) {
    engine_.on_progress = [&] {
      for (uint64_t i = 0; i < 15; ++i) ASSERT_TRUE(Add(cq, i));
    };
    EXPECT_EQ(Drain(cq).size(), 15u);
  }
  EXPECT_EQ(engine_.leases_renewed, 0);
  EXPECT_EQ(engine_.progressed, 20);
}

// The application may be about to wait for the event.
TEST_F(CompletionQueueTest, ManyPollsDoNothingWhileArmed) {
  CompletionQueue cq(engine_, Config(1000));
  for (uint64_t i = 0; i < 600; ++i) ASSERT_TRUE(Add(cq, i));
  cq.Arm(true);
  EXPECT_EQ(Drain(cq, 40).size(), 40u);
  EXPECT_EQ(Drain(cq, 560).size(), 560u);
  EXPECT_EQ(engine_.leases_renewed, 0);
  EXPECT_EQ(engine_.progressed, 0);
}

TEST_F(CompletionQueueTest, OverrunKeepsTheContents) {
  CompletionQueue cq(engine_, Config(2));
  EXPECT_TRUE(Add(cq, 1));
  EXPECT_TRUE(Add(cq, 2));
  EXPECT_FALSE(Waits(async_));
  EXPECT_FALSE(Add(cq, 3));
  EXPECT_FALSE(Add(cq, 4));
  EXPECT_TRUE(cq.overrun());
  Event event;
  ASSERT_EQ(async_.Take(engine_, &event), 0);
  EXPECT_EQ(event.type, 77);
  EXPECT_EQ(event.element, this);
  EXPECT_FALSE(Waits(async_));  // once
  EXPECT_EQ(Drain(cq), (Ids{1, 2}));
  EXPECT_FALSE(Add(cq, 5));  // it stays in error
  EXPECT_EQ(cq.WithdrawAsyncEvents(), 1u);
}

TEST_F(CompletionQueueTest, OverrunIgnored) {
  CompletionQueue::Config config = Config(2);
  config.ignore_overrun = true;
  CompletionQueue cq(engine_, config);
  for (uint64_t i = 0; i < 5; ++i) EXPECT_TRUE(Add(cq, i));
  EXPECT_FALSE(Waits(async_));
  EXPECT_EQ(Drain(cq), (Ids{3, 4}));
}

TEST_F(CompletionQueueTest, ForgetsOneQueuePair) {
  CompletionQueue cq(engine_, Config(5));
  const auto add = [&](uint64_t id, uint32_t qpn) {
    Completion completion;
    completion.wr_id = id;
    completion.qpn = qpn;
    ASSERT_TRUE(cq.Push(completion));
  };
  // These completions wrap around the end of the ring.
  for (uint64_t id : {0, 1, 2}) add(id, 7);
  EXPECT_EQ(Drain(cq), (Ids{0, 1, 2}));
  add(3, 7);
  add(4, 8);
  add(5, 7);
  add(6, 8);
  add(7, 9);
  cq.Forget(8);
  add(8, 8);
  EXPECT_EQ(Drain(cq), (Ids{3, 5, 7, 8}));
  cq.Forget(7);
  EXPECT_EQ(Drain(cq), Ids{});
}

// A completion releases its request's slot in the queue when it is polled or
// dropped, and not before.
TEST_F(CompletionQueueTest, ReleasesSlots) {
  CompletionQueue::Config config = Config(4);
  config.ignore_overrun = true;
  CompletionQueue cq(engine_, config);
  transport::Retrieved mine, others, gone;
  const auto add = [&](uint32_t qpn, transport::Retrieved* queue,
                       uint32_t end) {
    Completion completion;
    completion.qpn = qpn;
    completion.slot = {.queue = queue, .end = end};
    ASSERT_TRUE(cq.Push(completion));
  };
  for (uint32_t end = 1; end <= 3; ++end) add(5, &mine, 10 * end);
  EXPECT_EQ(mine.end(), 0u);
  Drain(cq, 1);
  EXPECT_EQ(mine.end(), 10u);
  ASSERT_EQ(cq.Resize(5, 5), 0);
  add(6, &others, 7);
  add(5, &mine, 40);
  add(6, &others, 8);
  EXPECT_EQ(mine.end(), 10u);
  add(7, &gone, 1);  // replaces the oldest
  EXPECT_EQ(mine.end(), 20u);
  cq.ForgetSlots(&gone);
  cq.Forget(5);
  EXPECT_EQ(mine.end(), 40u);
  EXPECT_EQ(others.end(), 0u);
  EXPECT_EQ(Drain(cq).size(), 3u);
  EXPECT_EQ(others.end(), 8u);
  EXPECT_EQ(gone.end(), 0u);
}

TEST_F(CompletionQueueTest, ArmedOnceForTheNext) {
  CompletionQueue cq(engine_, Config(8));
  Add(cq, 1);
  cq.Arm(false);
  EXPECT_EQ(engine_.leases_dropped, 1);
  EXPECT_FALSE(Waits(channel_));
  Add(cq, 2);
  EXPECT_TRUE(Waits(channel_));
  Add(cq, 3);
  Event event;
  ASSERT_EQ(channel_.Take(engine_, &event), 0);
  EXPECT_FALSE(Waits(channel_));
  EXPECT_EQ(cq.WithdrawCompletionEvents(), 1u);
}

// A program that polls one batch for each event gets an event for each batch.
TEST_F(CompletionQueueTest, LeftoversOfAPollRaiseAnEvent) {
  CompletionQueue cq(engine_, Config(8));
  Event event;
  cq.Arm(false);
  for (uint64_t i = 0; i < 5; ++i) Add(cq, i);
  for (const Ids& batch : {Ids{0, 1}, Ids{2, 3}, Ids{4}}) {
    ASSERT_TRUE(Waits(channel_));
    ASSERT_EQ(channel_.Take(engine_, &event), 0);
    cq.Arm(false);
    EXPECT_FALSE(Waits(channel_));
    EXPECT_EQ(Drain(cq, 2), batch);
  }
  EXPECT_FALSE(Waits(channel_));
  // No event if none was requested, for unsolicited completions, or for a
  // program that polls one at a time.
  for (uint64_t i = 5; i < 13; ++i) Add(cq, i);
  ASSERT_TRUE(Waits(channel_));
  ASSERT_EQ(channel_.Take(engine_, &event), 0);
  EXPECT_EQ(Drain(cq, 2), (Ids{5, 6}));
  cq.Arm(true);
  EXPECT_EQ(Drain(cq, 2), (Ids{7, 8}));
  cq.Arm(false);
  EXPECT_EQ(Drain(cq, 1), Ids{9});
  EXPECT_FALSE(Waits(channel_));
  EXPECT_EQ(Drain(cq, 2), (Ids{10, 11}));
  EXPECT_TRUE(Waits(channel_));
}

TEST_F(CompletionQueueTest, ArmedForSolicited) {
  CompletionQueue cq(engine_, Config(8));
  cq.Arm(true);
  Add(cq, 1);
  EXPECT_FALSE(Waits(channel_));
  Add(cq, 2, true);
  EXPECT_TRUE(Waits(channel_));
  Event event;
  ASSERT_EQ(channel_.Take(engine_, &event), 0);
  cq.Arm(true);
  Add(cq, 3, false, transport::WcStatus::kFlushed);
  EXPECT_TRUE(Waits(channel_));
  ASSERT_EQ(channel_.Take(engine_, &event), 0);
  // A request for solicited completions does not narrow an earlier one for any.
  cq.Arm(false);
  cq.Arm(true);
  Add(cq, 4);
  EXPECT_TRUE(Waits(channel_));
}

TEST_F(CompletionQueueTest, ModerationByCount) {
  CompletionQueue cq(engine_, Config(8));
  ASSERT_EQ(cq.Moderate(3, 0), 0);
  Event event;
  for (uint64_t i = 0; i < 9; i += 3) {
    cq.Arm(false);
    Add(cq, i);
    Add(cq, i + 1);
    EXPECT_FALSE(Waits(channel_));
    EXPECT_EQ(Drain(cq), (Ids{i, i + 1}));  // polls are not moderated
    Add(cq, i + 2);
    ASSERT_TRUE(Waits(channel_));
    ASSERT_EQ(channel_.Take(engine_, &event), 0);
    EXPECT_EQ(Drain(cq), Ids{i + 2});
  }
  EXPECT_EQ(engine_.alarm_delay, 0);
}

TEST_F(CompletionQueueTest, ModerationByTime) {
  CompletionQueue cq(engine_, Config(8));
  ASSERT_EQ(cq.Moderate(3, 1000), 0);
  cq.Arm(false);
  EXPECT_EQ(engine_.alarm_delay, 0);  // no completion yet
  Add(cq, 1);
  EXPECT_EQ(engine_.alarm_delay, 1000 * transport::kMicrosecond);
  EXPECT_FALSE(Waits(channel_));
  // The alarm rings too early, as after an event that was raised by the count.
  engine_.alarm_delay = 0;
  engine_.alarm();
  EXPECT_FALSE(Waits(channel_));
  EXPECT_GT(engine_.alarm_delay, 0);
  EXPECT_LT(engine_.alarm_delay, 1000 * transport::kMicrosecond);
  while (!Waits(channel_)) engine_.alarm();
  Event event;
  ASSERT_EQ(channel_.Take(engine_, &event), 0);
  // A further alarm raises no event, since none is requested.
  Add(cq, 2);
  engine_.alarm();
  EXPECT_FALSE(Waits(channel_));
}

TEST_F(CompletionQueueTest, ModerationEndsWhenTheQueueIsFull) {
  CompletionQueue cq(engine_, Config(4));
  ASSERT_EQ(cq.Moderate(100, 0), 0);
  cq.Arm(false);
  for (uint64_t i = 0; i < 3; ++i) Add(cq, i);
  EXPECT_FALSE(Waits(channel_));
  Add(cq, 3);
  EXPECT_TRUE(Waits(channel_));
}

TEST_F(CompletionQueueTest, HeldEventsWhenModerationChanges) {
  CompletionQueue cq(engine_, Config(8));
  ASSERT_EQ(cq.Moderate(5, 0), 0);
  cq.Arm(false);
  Add(cq, 1);
  Add(cq, 2);
  ASSERT_EQ(cq.Moderate(3, 0), 0);
  EXPECT_FALSE(Waits(channel_));
  ASSERT_EQ(cq.Moderate(2, 0), 0);
  EXPECT_TRUE(Waits(channel_));
  Event event;
  ASSERT_EQ(channel_.Take(engine_, &event), 0);
  ASSERT_EQ(cq.Moderate(100, 0), 0);
  cq.Arm(false);
  Add(cq, 3);
  EXPECT_FALSE(Waits(channel_));
  ASSERT_EQ(cq.Moderate(0, 0), 0);
  EXPECT_TRUE(Waits(channel_));
}

TEST_F(CompletionQueueTest, NoAlarmAfterEventsAreWithdrawn) {
  CompletionQueue cq(engine_, Config(8));
  ASSERT_EQ(cq.Moderate(0, 1000), 0);
  cq.Arm(false);
  Add(cq, 1);
  cq.WithdrawCompletionEvents();
  EXPECT_EQ(engine_.alarm, nullptr);
}

TEST_F(CompletionQueueTest, ResizeKeepsTheContents) {
  CompletionQueue cq(engine_, Config(4));
  for (uint64_t i = 0; i < 3; ++i) Add(cq, i);
  EXPECT_EQ(Drain(cq, 2), (Ids{0, 1}));
  for (uint64_t i = 3; i < 6; ++i) Add(cq, i);  // wraps
  EXPECT_EQ(cq.Resize(3, 3), EINVAL);
  EXPECT_EQ(cq.Resize(6, 6), 0);
  EXPECT_EQ(cq.capacity(), 6u);
  Add(cq, 6);
  Add(cq, 7);
  EXPECT_EQ(Drain(cq), (Ids{2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(cq.Resize(1, 1), 0);
  EXPECT_TRUE(Add(cq, 8));
  EXPECT_FALSE(Add(cq, 9));
}

}  // namespace
}  // namespace rxe_user
