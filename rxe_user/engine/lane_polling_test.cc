// What a lane learns about the polling of its application, and which threads it
// therefore wakes, on a virtual clock. Batches of posts are in
// lane_batch_test.cc, busy polling in lane_busy_poll_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "rxe_user/testing/lane_end.h"

namespace rxe_user {
namespace {

using transport::kMicrosecond;
using transport::kMillisecond;
using transport::kNever;
using transport::Time;

Time& now = virtual_now;

// Whether the helper waits for the lane's lock. `until` is its next wake-up.
bool HelperWaitsForTheLock(LaneImpl* lane, Time* until = nullptr) {
  std::atomic<bool> done = false;
  bool waits;
  Time wake = 0;
  std::thread helper;
  {
    const Lane::Guard guard(*lane);
    helper = std::thread([&] {
      wake = lane->RunHelper();
      done = true;
    });
    // Either the helper finishes, or it waits for the lock.
    while (!done && !lane->contended()) std::this_thread::yield();
    waits = !done;
  }
  helper.join();
  if (until != nullptr) *until = wake;
  return waits;
}

TEST_F(LaneTest, PollingModeEndsWhenPollingDoes) {
  Post();
  EnterPollingMode();
  now += 50 * kMicrosecond;
  lane_.RunHelper();
  EXPECT_TRUE(helper_.armed);
}

TEST_F(LaneTest, ChecksBecomeRarerDuringPolling) {
  Post();
  EnterPollingMode();
  for (const int us : {40, 80, 160, 320, 640, 1280, 2560, 2560}) {
    now += 20 * kMicrosecond;
    lane_.Progress();
    EXPECT_EQ(lane_.RunHelper(), now + us * kMicrosecond);
    EXPECT_FALSE(helper_.armed);
  }
}

// The lock's holder needs the core that a waiting helper would use. The helper
// still processes what it was woken for.
TEST_F(LaneTest, ACheckDoesNotWaitForTheLock) {
  EnterPollingMode();
  lane_.Progress();
  const Time interval = lane_.RunHelper() - now;
  Time until = 0;
  EXPECT_FALSE(HelperWaitsForTheLock(&lane_, &until));
  EXPECT_EQ(until, now + 2 * interval);
  EXPECT_FALSE(helper_.armed);
  // This holds although the application has not polled for some time.
  now += AppActivity::kLease;
  EXPECT_FALSE(HelperWaitsForTheLock(&lane_, &until));
  EXPECT_EQ(until, now + 4 * interval);
}

// If the helper left the socket unread, it would be woken again.
TEST_F(LaneTest, AnArrivalAtAnArmedSocketWaitsForTheLock) {
  LaneEnd peer;
  Join(&peer);
  ActivateAdaptiveArming(&peer);
  peer.Post();
  peer.lane.RunHelper();
  ASSERT_FALSE(port_->on_the_wire.empty());
  EXPECT_TRUE(HelperWaitsForTheLock(&lane_));
  EXPECT_TRUE(port_->on_the_wire.empty());
}

// The lock's holder need not be the thread that polls.
TEST_F(LaneTest, WithoutPollsACheckWaitsForTheLock) {
  EnterPollingMode();
  lane_.Progress();
  lane_.RunHelper();
  now += 2 * kMillisecond;
  EXPECT_TRUE(HelperWaitsForTheLock(&lane_));
}

// A check without the lock postpones the helper's wake-up.
TEST_F(LaneTest, AfterACheckTheEndOfPollingModeWakesTheHelper) {
  EnterPollingMode();
  lane_.Progress();
  now = lane_.RunHelper();
  EXPECT_FALSE(HelperWaitsForTheLock(&lane_));
  port_->block_next = true;
  Post();
  EXPECT_EQ(helper_.wakes, 0);
  lane_.DropLease();
  EXPECT_EQ(helper_.wakes, 1);
}

// The last post before an application stops without a call is sent.
TEST_F(LaneTest, NoPostIsLeftWithAdaptiveArming) {
  LaneEnd peer;
  Join(&peer);
  ActivateAdaptiveArming(&peer);
  for (int i = 0; i < 4; ++i) lane_.Progress();
  ASSERT_FALSE(helper_.armed);
  for (int i = 0; i < 8; ++i) {
    now += kMicrosecond / 4;
    Post();
  }
  lane_.RunHelper();
  const Lane::Guard guard(lane_);
  EXPECT_FALSE(lane_.endpoint().HasTransmit());
}

// An application that posts for longer than its lease will poll afterwards.
TEST_F(LaneTest, PostingBetweenPollsRenewsTheLease) {
  LaneEnd peer;
  Join(&peer);
  EnterPollingMode();
  for (int i = 0; i < 5; ++i) lane_.Progress();
  for (int i = 0; i < 8; ++i) {
    now += 5 * kMicrosecond;
    Post();
  }
  peer.lane.RunHelper();
  ASSERT_FALSE(port_->on_the_wire.empty());
  lane_.RunHelper();
  EXPECT_FALSE(port_->on_the_wire.empty());
  // An application that never polls does not renew its lease by posting.
  for (int i = 0; i < 220; ++i) {
    now += 5 * kMicrosecond;
    Post();
  }
  now = lane_.RunHelper();
  Post();
  lane_.RunHelper();
  EXPECT_TRUE(port_->on_the_wire.empty());
}

// A check finds an ACK that a poll has just left. If the helper runs on the
// application's core, the application cannot have polled since.
TEST_F(LaneTest, ACheckLeavesTheAckOfAPoll) {
  LaneEnd peer;
  Join(&peer);
  EnterPollingMode();
  for (int i = 0; i < 5; ++i) lane_.Progress();
  peer.Post();
  EXPECT_EQ(lane_.Progress(), LaneImpl::PollResult::kSomething);
  EXPECT_EQ(PacketsSent(), 0);
  now += 5 * kMicrosecond;
  EXPECT_LT(lane_.RunHelper(), now + kMillisecond);
  EXPECT_EQ(PacketsSent(), 0);
  // Now it has stopped polling.
  now += 40 * kMicrosecond;
  lane_.RunHelper();
  EXPECT_EQ(PacketsSent(), 1);
  EXPECT_EQ(lane_.counters().missed_arrivals, 1u);
}

// A helper with more to send than one turn allows returns at once for the next
// turn, without counting the application as polling.
TEST_F(LaneTest, AHelperWithMoreToSendContinues) {
  constexpr uint32_t kQps = 80;  // a turn makes 32 bursts
  for (uint32_t i = 1; i < kQps; ++i) {
    end_.Connect(kQpn + i, kPeerQpn + i, "10.0.0.1", "10.0.0.2");
  }
  lane_.Progress();
  now += 100 * kMillisecond;
  {
    const Lane::Guard guard(lane_);
    for (uint32_t i = 0; i < kQps; ++i) {
      transport::SendRequest request;
      request.opcode = transport::SendOpcode::kRdmaWrite;
      ASSERT_EQ(end_.qp->PostSend(request, now), 0);
      std::swap(end_.qp, end_.others[i % (kQps - 1)]);
    }
  }
  ASSERT_EQ(PacketsSent(), 32);
  EXPECT_LE(lane_.RunHelper(), now);
  EXPECT_EQ(PacketsSent(), 64);
  lane_.RunHelper();
  EXPECT_EQ(PacketsSent(), int{kQps});
  EXPECT_EQ(lane_.counters().polling_modes, 0u);
}

// The helper's own run may have kept the application off its core.
TEST_F(LaneTest, TheApplicationHasTimeBetweenTwoChecks) {
  LaneEnd peer;
  Join(&peer);
  EnterPollingMode();
  for (int i = 0; i < 5; ++i) lane_.Progress();
  now += 15 * kMicrosecond;
  peer.Post();
  port_->send_cost = 15 * kMicrosecond;  // of the ACK
  const Time start = now;
  const Time again = lane_.RunHelper();
  EXPECT_EQ(lane_.counters().missed_arrivals, 1u);
  EXPECT_EQ(again, start + 15 * kMicrosecond + 20 * kMicrosecond);
}

// An application that takes buffered completions makes no progress, and is
// still active.
TEST_F(LaneTest, TakingCompletionsRenewsTheLease) {
  LaneEnd peer;
  Join(&peer);
  EnterPollingMode();
  for (int i = 0; i < 5; ++i) lane_.Progress();
  peer.Post();
  for (int i = 0; i < 3; ++i) {
    now += 7 * kMicrosecond;
    lane_.RenewLease();
  }
  lane_.RunHelper();
  EXPECT_FALSE(port_->on_the_wire.empty());
  now += 50 * kMicrosecond;
  lane_.RunHelper();
  EXPECT_TRUE(port_->on_the_wire.empty());
}

// Adaptive arming does not regard an application that takes buffered
// completions as waiting for its memory.
TEST_F(LaneTest, TakingCompletionsEndsAdaptiveArming) {
  LaneEnd peer;
  Join(&peer);
  ActivateAdaptiveArming(&peer);
  for (int i = 0; i < 40 && helper_.armed; ++i) {
    peer.Post();
    lane_.Progress();  // receives a packet, and arms
    now += kMicrosecond;
    lane_.RenewLease();
    peer.Post();
    lane_.RunHelper();  // woken for it
  }
  EXPECT_FALSE(helper_.armed);
}

// Two threads poll, and one of them finds something every microsecond. The
// other one still yields once it has found nothing for long.
TEST_F(LaneTest, AnIdleThreadYieldsToABusyOne) {
  using PollResult = LaneImpl::PollResult;
  LaneEnd peer;
  Join(&peer);
  EnterPollingMode();
  constexpr int kTurns = 40;
  std::vector<PollResult> found;
  std::atomic<int> turn = 0;  // even: this thread's turn
  std::thread other([&] {
    for (int i = 0; i < kTurns; ++i) {
      while (turn != 2 * i + 1) std::this_thread::yield();
      found.push_back(lane_.Progress());
      turn = 2 * i + 2;
    }
  });
  for (int i = 0; i < kTurns; ++i) {
    peer.Post();
    EXPECT_EQ(lane_.Progress(), PollResult::kSomething);
    while (lane_.Progress() == PollResult::kSomething) {  // the ACK
    }
    EXPECT_EQ(lane_.Progress(), PollResult::kNothing);
    now += kMicrosecond;
    turn = 2 * i + 1;
    while (turn != 2 * i + 2) std::this_thread::yield();
  }
  other.join();
  for (int i = 0; i < kTurns; ++i) {
    EXPECT_EQ(found[i] == PollResult::kNothingForLong, i > 30) << i;
  }
}

// An application waits for its memory to change, and answers. From the fifth
// message on, its ACK is sent with the answer; sent alone, it would wake the
// peer for nothing.
TEST_F(LaneTest, AnAnswerCarriesTheAck) {
  LaneEnd peer;
  Join(&peer);
  // The number of packets that the helper sends when a WRITE arrives.
  const auto sent_by_helper = [&] {
    peer.Post();
    const size_t before = port_->packets.size();
    now += 3 * kMicrosecond;
    end_.LetHelperRun();
    return port_->packets.size() - before;
  };
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(sent_by_helper(), i < 4 ? 1u : 0u) << i;
    now += 2 * kMicrosecond;
    const int before = PacketsSent();
    Post();
    EXPECT_EQ(PacketsSent() - before, i < 4 ? 1 : 2) << i;
    now += 3 * kMicrosecond;
    peer.LetHelperRun();
    EXPECT_EQ(peer.qp->counters().retransmitted, 0u);
  }
  // The application stops answering. The ACK is late once, by a little, and
  // then no more.
  int late = 0;
  while (sent_by_helper() == 0) {
    ++late;
    ASSERT_LT(late, 10);
    const size_t before = port_->packets.size();
    now += 200 * kMicrosecond;
    end_.LetHelperRun();
    EXPECT_EQ(port_->packets.size() - before, 1u);
    peer.LetHelperRun();
  }
  EXPECT_EQ(late, 1);
  EXPECT_EQ(sent_by_helper(), 1u);
}

// Two applications poll and write to each other in turns for 100 ms. Neither
// arrivals nor posts wake their helpers, and the epoll set does not change,
// however long a poll takes.
class Polling : public LaneTest, public ::testing::WithParamInterface<Time> {
 protected:
  void SetUp() override {
    end_.poll_cost = GetParam();
    LaneTest::SetUp();
  }
};

TEST_P(Polling, KeepsTheHelperAsleep) {
  const Time step = GetParam();
  LaneEnd peer;
  peer.poll_cost = step;
  Join(&peer);
  int messages = 0;
  int idle = 0;  // polls since the last completion
  const auto run = [&](Time how_long) {
    for (const Time end = now + how_long; now < end; now += step) {
      for (LaneEnd* e : {&end_, &peer}) {
        e->LetHelperRun();  // before the poll, as an armed socket would wake it
        e->lane.Progress();
      }
      if (const auto completion = end_.cq.Poll()) {
        ASSERT_EQ(completion->status, transport::WcStatus::kSuccess);
        ++messages;
        idle = 0;
      } else if (++idle == 4) {
        Post();
      }
    }
  };
  Post();
  run(1000 * step);  // warm up
  messages = 0;
  const auto arms = [&] { return end_.helper.arms + peer.helper.arms; };
  const auto missed = [&] {
    return end_.lane.counters().missed_arrivals +
           peer.lane.counters().missed_arrivals;
  };
  const int arms_before = arms();
  const uint64_t missed_before = missed();
  for (LaneEnd* e : {&end_, &peer}) e->helper_turns = e->helper.wakes = 0;
  run(100 * kMillisecond);
  EXPECT_GT(messages, 10 * kMillisecond / step);
  EXPECT_EQ(arms(), arms_before);
  EXPECT_EQ(missed(), missed_before);
  // 100 ms in check intervals of this length, after a few shorter ones.
  const Time interval =
      std::clamp<Time>(2560 * step, 2560 * kMicrosecond, 5 * kMillisecond);
  for (LaneEnd* e : {&end_, &peer}) {
    EXPECT_LE(e->helper_turns, 100 * kMillisecond / interval + 10);
    EXPECT_LE(e->helper.wakes, 1);
  }
}
INSTANTIATE_TEST_SUITE_P(EachTakes, Polling,
                         ::testing::Values(kMicrosecond / 10, kMicrosecond,
                                           5 * kMicrosecond,
                                           15 * kMicrosecond));

// An application polls for its completion and then waits for its memory to
// change. After a few times, its arrivals are noticed at once, however long it
// polls.
class WaitingForMemory : public LaneTest,
                         public ::testing::WithParamInterface<int> {};

TEST_P(WaitingForMemory, IsLearned) {
  LaneEnd peer;
  Join(&peer);
  int late = 0;
  for (int i = 0; i < 200; ++i) {
    const Time answered = now + GetParam() * kMicrosecond;
    Post();
    while (!end_.cq.Poll()) {
      now += kMicrosecond / 5;
      if (now >= answered) peer.lane.Progress();
      lane_.Progress();
      end_.LetHelperRun();
    }
    // The answer arrives while it does not poll.
    for (int us = 0; us < 10; ++us) {
      now += kMicrosecond;
      end_.LetHelperRun();
    }
    peer.Post();
    const Time sent = now;
    while (!port_->on_the_wire.empty()) {
      now += kMicrosecond;
      end_.LetHelperRun();
    }
    if (now - sent > 2 * kMicrosecond) ++late;
    while (!peer.cq.Poll()) {
      now += kMicrosecond;
      end_.LetHelperRun();
      peer.lane.Progress();
    }
  }
  EXPECT_LE(late, 8);
}
INSTANTIATE_TEST_SUITE_P(PollsFor, WaitingForMemory,
                         ::testing::Values(0, 5, 10, 15, 20, 30, 50));

// Two applications write to each other in turns. Each polls until its write is
// acknowledged, and then waits for its memory to change. Soon the ACK always
// arrives with the answer, so that polling finds both and no helper is needed.
TEST_F(LaneTest, WritingInTurnsNeedsNoHelper) {
  LaneEnd peer;
  Join(&peer);
  end_.to = &peer;
  peer.to = &end_;
  struct Application {
    LaneEnd* end;
    bool polls;     // else it waits for its memory
    uint64_t seen;  // bytes of it
  };
  Application applications[] = {{&end_, true, 0}, {&peer, false, 0}};
  Post();
  const auto run = [&](uint64_t messages) {
    const uint64_t goal = end_.inbox[0] + messages;
    for (uint64_t steps = 0; end_.inbox[0] < goal; ++steps) {
      ASSERT_LT(steps, messages * 10000);
      now += kMicrosecond / 5;
      for (Application& a : applications) {
        a.end->LetHelperRun();
        if (a.polls) {
          a.end->lane.Progress();
          if (a.end->cq.Poll()) a.polls = false;
        } else if (a.end->inbox[0] > a.seen) {
          ++a.seen;
          a.end->Post();
          a.polls = true;
        }
      }
    }
  };
  run(200);
  for (Application& a : applications) a.end->helper_turns = 0;
  const Time begin = now;
  run(1000);
  EXPECT_LT(now - begin, 1000 * 3 * kMicrosecond);
  for (const Application& a : applications) {
    EXPECT_LT(a.end->helper_turns, 20);
  }
}

}  // namespace
}  // namespace rxe_user
