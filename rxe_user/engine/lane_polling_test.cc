// What a lane learns of how its application polls, on a virtual clock, and what
// becomes of that: who is woken for what. Batches of posts are in
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

// Whether the helper waits for who holds the lane. `until` is when it comes
// again.
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
    // It does the one or the other.
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

TEST_F(LaneTest, ChecksBecomeFewerWhilePollingGoesOn) {
  Post();
  EnterPollingMode();
  for (const int us : {40, 80, 160, 320, 640, 1280, 2560, 2560}) {
    now += 20 * kMicrosecond;
    lane_.Progress();
    EXPECT_EQ(lane_.RunHelper(), now + us * kMicrosecond);
    EXPECT_FALSE(helper_.armed);
  }
}

// Who holds the lock is at work, and needs the core that the helper would wait
// on. What the helper was called for, however, it sees to.
TEST_F(LaneTest, ACheckDoesNotWaitForTheLock) {
  EnterPollingMode();
  lane_.Progress();
  const Time interval = lane_.RunHelper() - now;
  Time until = 0;
  EXPECT_FALSE(HelperWaitsForTheLock(&lane_, &until));
  EXPECT_EQ(until, now + 2 * interval);
  EXPECT_FALSE(helper_.armed);
  // Though it has not polled for some time.
  now += AppActivity::kLease;
  EXPECT_FALSE(HelperWaitsForTheLock(&lane_, &until));
  EXPECT_EQ(until, now + 4 * interval);
}

// What has woken the helper would only wake it again.
TEST_F(LaneTest, AnArrivalThatTheSocketsToldOfWaitsForTheLock) {
  LaneEnd peer;
  Join(&peer);
  ActivateAdaptiveArming(&peer);
  peer.Post();
  peer.lane.RunHelper();
  ASSERT_FALSE(port_->on_the_wire.empty());
  EXPECT_TRUE(HelperWaitsForTheLock(&lane_));
  EXPECT_TRUE(port_->on_the_wire.empty());
}

// Who holds the lock need not be the one that polled.
TEST_F(LaneTest, WithoutPollsACheckWaitsForTheLock) {
  EnterPollingMode();
  lane_.Progress();
  lane_.RunHelper();
  now += 2 * kMillisecond;
  EXPECT_TRUE(HelperWaitsForTheLock(&lane_));
}

// A helper that came and went without the lock has forgotten its promise.
TEST_F(LaneTest, AfterACheckTheEndOfPollingModeCallsTheHelper) {
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

// What was posted last before such an application goes away goes out.
TEST_F(LaneTest, NoPostIsLeftWhileArmingIsAdaptive) {
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

// One that posts for longer than the helper is patient will poll then.
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
  // Unless it does not poll at all.
  for (int i = 0; i < 220; ++i) {
    now += 5 * kMicrosecond;
    Post();
  }
  now = lane_.RunHelper();
  Post();
  lane_.RunHelper();
  EXPECT_TRUE(port_->on_the_wire.empty());
}

// The helper comes by and finds an acknowledgement that a poll has left just
// now: the application cannot have polled since, if it is its core that the
// helper runs on.
TEST_F(LaneTest, ACheckDoesNotTakeWhatPollingLeft) {
  LaneEnd peer;
  Join(&peer);
  EnterPollingMode();
  for (int i = 0; i < 5; ++i) lane_.Progress();
  peer.Post();
  EXPECT_EQ(lane_.Progress(), LaneImpl::Found::kSomething);
  EXPECT_EQ(PacketsSent(), 0);
  now += 5 * kMicrosecond;
  EXPECT_LT(lane_.RunHelper(), now + kMillisecond);
  EXPECT_EQ(PacketsSent(), 0);
  // But it has stopped polling.
  now += 40 * kMicrosecond;
  lane_.RunHelper();
  EXPECT_EQ(PacketsSent(), 1);
  EXPECT_EQ(lane_.counters().missed_arrivals, 1u);
}

// One that has more to send than fits its turn comes back at once, and goes on:
// nothing has told it of an application that polls.
TEST_F(LaneTest, AHelperThatHasMoreToDoGoesOnWithIt) {
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

// Its own run takes time, too, in which the application may not have its core.
TEST_F(LaneTest, TheApplicationHasTimeBetweenTwoChecks) {
  LaneEnd peer;
  Join(&peer);
  EnterPollingMode();
  for (int i = 0; i < 5; ++i) lane_.Progress();
  now += 15 * kMicrosecond;
  peer.Post();
  port_->send_cost = 15 * kMicrosecond;  // of the acknowledgement
  const Time start = now;
  const Time again = lane_.RunHelper();
  EXPECT_EQ(lane_.counters().missed_arrivals, 1u);
  EXPECT_EQ(again, start + 15 * kMicrosecond + 20 * kMicrosecond);
}

// One that takes completions which are already there makes no progress, and is
// at it nevertheless.
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

// Nor does such a one stay away from what it armed the lane for: attention
// ends.
TEST_F(LaneTest, TakingCompletionsIsNotStayingAway) {
  LaneEnd peer;
  Join(&peer);
  ActivateAdaptiveArming(&peer);
  for (int i = 0; i < 40 && helper_.armed; ++i) {
    peer.Post();
    lane_.Progress();  // brings something, and arms
    now += kMicrosecond;
    lane_.RenewLease();
    peer.Post();
    lane_.RunHelper();  // woken for it
  }
  EXPECT_FALSE(helper_.armed);
}

// Two threads poll, and one of them finds something every microsecond. The
// other one leaves its core all the same when it has found nothing for long.
TEST_F(LaneTest, AThreadThatFindsNothingLeavesItsCoreToThoseThatDo) {
  using Found = LaneImpl::Found;
  LaneEnd peer;
  Join(&peer);
  EnterPollingMode();
  constexpr int kTurns = 40;
  std::vector<Found> found;
  std::atomic<int> turn = 0;  // even: this thread's
  std::thread other([&] {
    for (int i = 0; i < kTurns; ++i) {
      while (turn != 2 * i + 1) std::this_thread::yield();
      found.push_back(lane_.Progress());
      turn = 2 * i + 2;
    }
  });
  for (int i = 0; i < kTurns; ++i) {
    peer.Post();
    EXPECT_EQ(lane_.Progress(), Found::kSomething);
    while (lane_.Progress() == Found::kSomething) {  // the acknowledgement
    }
    EXPECT_EQ(lane_.Progress(), Found::kNothing);
    now += kMicrosecond;
    turn = 2 * i + 1;
    while (turn != 2 * i + 2) std::this_thread::yield();
  }
  other.join();
  for (int i = 0; i < kTurns; ++i) {
    EXPECT_EQ(found[i] == Found::kNothingForLong, i > 30) << i;
  }
}

// An application that waits for its memory to change, and answers: from the
// fifth time on, the acknowledgement goes out with the answer. Alone it would
// wake the peer, for nothing.
TEST_F(LaneTest, AnAnswerTakesTheAcknowledgementAlong) {
  LaneEnd peer;
  Join(&peer);
  // What the helper sends by itself when a WRITE arrives.
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
  // It stops answering. The acknowledgement is late once, by little, and then
  // no more.
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

// Two that poll and write to each other in turns, for 100 ms: their helpers are
// not woken by what arrives, nor does posting wake them, nor does the set of
// sockets that they wait on change. However long a poll takes.
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
        e->LetHelperRun();  // the first to hear of what arrives, if it listens
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
  run(1000 * step);  // they begin
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
  // 100 ms in steps of so much, and a few shorter ones before.
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

// An application that polls for its completion and then waits for its memory to
// change is no longer left alone after a few times, however long it polls.
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
    // The answer comes while nobody polls.
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

// Two that write to each other in turns, each of which polls until its write is
// acknowledged and then waits for its memory to change: before long the
// acknowledgement always comes with the answer, so that polling finds both and
// no helper is needed.
TEST_F(LaneTest, WritingInTurnsNeedsNoHelper) {
  LaneEnd peer;
  Join(&peer);
  end_.to = &peer;
  peer.to = &end_;
  struct Application {
    LaneEnd* end;
    bool polls;     // else it waits for its memory
    uint64_t seen;  // there
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
