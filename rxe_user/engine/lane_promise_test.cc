// The invariant of lane_impl.h, on a virtual clock: whatever the application
// did before it stopped calling, and whatever the system refused, all pending
// tasks are done in time. Calls are random; a seed replays exactly.
#include <gtest/gtest.h>

#include <random>

#include "rxe_user/testing/lane_end.h"

namespace rxe_user {
namespace {

using transport::kMicrosecond;
using transport::kMillisecond;
using transport::Time;

Time& now = virtual_now;

// One end has an application and its helper; the application at the other end
// polls.
class PromiseTest : public LaneTest, public ::testing::WithParamInterface<int> {
 protected:
  void SetUp() override {
    random_.seed(static_cast<unsigned>(GetParam()));
    if (Chance(4)) end_.spin = 100 * kMicrosecond;
    if (Chance(4)) end_.poll_cost = 5 * kMicrosecond;
    LaneTest::SetUp();
    Join(&peer_);
    end_.to = &peer_;
    peer_.to = &end_;
  }
  int UpTo(int max) {
    return std::uniform_int_distribution<int>(0, max)(random_);
  }
  bool Chance(int one_in) { return UpTo(one_in - 1) == 0; }

  void PeerAnswers() {
    peer_.lane.Progress();
    peer_.LetHelperRun();
    while (peer_.cq.Poll()) {
    }
  }
  void Pass(Time how_long) {
    const Time step = std::max<Time>(how_long / 8, 1);
    for (const Time end = now + how_long; now < end;) {
      end_.LetTimePass(step);
      PeerAnswers();
    }
  }
  void Post() {
    if (posted_ - done_ < 200) {
      end_.Post();
      ++posted_;
    }
  }
  void TakeCompletions() {
    while (end_.cq.Poll()) ++done_;
  }
  void Step() {
    switch (UpTo(9)) {
      case 0:
        for (int i = UpTo(60); i > 0; --i) Post();
        break;
      case 1:
        Post();
        break;
      case 2:
        for (int i = UpTo(20); i > 0; --i) {
          lane_.Progress();
          Pass(kMicrosecond / 4);
        }
        break;
      case 3:
        lane_.DropLease();
        break;
      case 4:
        lane_.RenewLease();
        break;
      case 5:
        if (lane_.EnterWait()) {
          for (int i = UpTo(3); i > 0; --i) {
            while (lane_.PollOnce(now)) {
            }
            Pass(UpTo(40) * kMicrosecond);
          }
          lane_.LeaveWait();
        }
        break;
      case 6:
        Pass(UpTo(100) * kMicrosecond);
        break;
      case 7:
        for (int i = UpTo(4); i > 0; --i) peer_.Post();
        break;
      case 8:
        helper_.refuses = Chance(4);
        break;
      case 9:
        port_->block_next = Chance(4);
        break;
    }
    TakeCompletions();
    end_.LetHelperRun();
    PeerAnswers();
  }

  std::mt19937 random_;
  LaneEnd peer_;
  int posted_ = 0;
  int done_ = 0;
};

TEST_P(PromiseTest, IsKept) {
  for (int i = 0; i < 60; ++i) Step();
  // The application computes. Its posts are on the wire in 50 us, unless the
  // system or the send window refuses them.
  const bool may_wait =
      port_->is_blocked || port_->block_next || posted_ - done_ > 40;
  end_.LetTimePass(50 * kMicrosecond);
  PeerAnswers();
  if (!may_wait) {
    EXPECT_EQ(peer_.inbox[0], static_cast<uint64_t>(posted_));
  }
  // From now on, arrivals are processed and answered within 10 ms: the longest
  // check interval, with a retry of what the system refuses.
  peer_.Post();
  Pass(10 * kMillisecond);
  port_->block_next = false;
  helper_.refuses = false;
  Pass(10 * kMillisecond);
  EXPECT_TRUE(port_->on_the_wire.empty());
  EXPECT_EQ(lane_.mode(), Mode::kArmed);
  EXPECT_TRUE(helper_.armed);
  TakeCompletions();
  EXPECT_EQ(done_, posted_);
  const Lane::Guard guard(lane_);
  EXPECT_FALSE(lane_.endpoint().HasTransmit());
}
INSTANTIATE_TEST_SUITE_P(Seeds, PromiseTest, ::testing::Range(0, 300));

}  // namespace
}  // namespace rxe_user
