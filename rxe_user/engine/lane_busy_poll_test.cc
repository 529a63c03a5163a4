// When the helper thread busy-polls before it sleeps, on a virtual clock:
// during bulk traffic, and for as long as the user allows.
#include <gtest/gtest.h>

#include <vector>

#include "rxe_user/testing/lane_end.h"

namespace rxe_user {
namespace {

using transport::kMicrosecond;
using transport::kMillisecond;
using transport::Time;

Time& now = virtual_now;
constexpr Time kAtOnce = kMicrosecond;

// A target of WRITEs of 32 KB. In bulk traffic the helper busy-polls for a
// while before it sleeps, since waking it costs the peer time.
class BulkTest : public LaneTest {
 protected:
  void SetUp() override {
    LaneTest::SetUp();
    Join(&peer_);
  }
  // Lets a WRITE arrive and the helper run. Returns its next wake-up.
  Time Arrive() {
    {
      const Lane::Guard guard(peer_.lane);
      peer_.PostLocked({reinterpret_cast<uint64_t>(from_.data()),
                        static_cast<uint32_t>(from_.size()), 1},
                       to_.data());
    }
    const Time until = lane_.RunHelper();
    peer_.lane.RunHelper();
    EXPECT_TRUE(peer_.cq.Poll());
    return until;
  }

  LaneEnd peer_;
  std::vector<uint8_t> from_ = std::vector<uint8_t>(32 << 10);
  std::vector<uint8_t> to_ = from_;
};

TEST_F(BulkTest, HelperBusyPollsWhileItFlows) {
  EXPECT_GT(Arrive(), now + kMillisecond);
  for (int i = 0; i < 100; ++i) {
    now += 20 * kMicrosecond;
    EXPECT_LT(Arrive(), now + kAtOnce);
    EXPECT_FALSE(helper_.armed);  // the sender need not wake it
  }
  // No busy polling while a thread waits.
  lane_.EnterWait();
  now += 20 * kMicrosecond;
  EXPECT_GT(Arrive(), now + kAtOnce);
  lane_.LeaveWait();
  now += 20 * kMicrosecond;
  EXPECT_LT(Arrive(), now + kAtOnce);
  // The traffic stops: the helper soon sleeps.
  now += 40 * kMicrosecond;
  EXPECT_LT(lane_.RunHelper(), now + kAtOnce);
  EXPECT_FALSE(helper_.armed);
  now += 15 * kMicrosecond;
  EXPECT_GT(lane_.RunHelper(), now + kMillisecond);
  EXPECT_TRUE(helper_.armed);
  // Slow traffic: no busy polling.
  for (int i = 0; i < 100; ++i) {
    now += 60 * kMicrosecond;
    EXPECT_GT(Arrive(), now + kMillisecond);
  }
  EXPECT_TRUE(helper_.armed);
}

// The thread whose packets busy polling waits for may need this core.
TEST_F(BulkTest, EmptyRoundsYieldTheCore) {
  Arrive();
  const uint64_t before = lane_.counters().yields;
  for (int i = 0; i < 10; ++i) {
    now += 5 * kMicrosecond;
    Arrive();
  }
  EXPECT_EQ(lane_.counters().yields, before);
  for (int i = 0; i < 3; ++i) {
    now += 5 * kMicrosecond;
    EXPECT_LT(lane_.RunHelper(), now + kAtOnce);
  }
  EXPECT_EQ(lane_.counters().yields, before + 3);
  // A helper that goes to sleep need not yield.
  now += 50 * kMicrosecond;
  EXPECT_GT(lane_.RunHelper(), now + kAtOnce);
  EXPECT_EQ(lane_.counters().yields, before + 3);
}

// The helper may preempt an application that polls now and then, and must not
// keep that core by busy polling.
TEST_F(BulkTest, NoBusyPollingBesideAPollingApplication) {
  for (int i = 0; i < 100; ++i) {
    if (i % 10 == 0) lane_.Progress();
    now += 40 * kMicrosecond;
    EXPECT_GT(Arrive(), now + kAtOnce) << i;
  }
}

// The user lets the helper of `peer_` spin for 100 us (RXE_USER_SPIN_US).
class SpinTest : public LaneTest {
 protected:
  void SetUp() override {
    LaneTest::SetUp();
    peer_.spin = 100 * kMicrosecond;
    Join(&peer_);
  }
  Time Arrive() {
    Post();
    return peer_.lane.RunHelper();
  }
  LaneEnd peer_;
};

TEST_F(SpinTest, BusyPollsAfterAnArrival) {
  EXPECT_GT(peer_.lane.RunHelper(), now + kMillisecond);  // nothing has arrived
  for (int i = 0; i < 3; ++i) {
    EXPECT_LT(Arrive(), now + kAtOnce);
    EXPECT_EQ(lane_.endpoint().counters().rx_datagrams, static_cast<size_t>(i));
    lane_.RunHelper();  // the ACK was sent at once
    EXPECT_TRUE(end_.cq.Poll());
    now += 99 * kMicrosecond;
    EXPECT_LT(peer_.lane.RunHelper(), now + kAtOnce);
    EXPECT_FALSE(peer_.helper.armed);
  }
  now += kMicrosecond;
  EXPECT_GT(peer_.lane.RunHelper(), now + kMillisecond);
  EXPECT_TRUE(peer_.helper.armed);
}

// A polling application notices arrivals itself.
TEST_F(SpinTest, NoBusyPollingBesideAPollingApplication) {
  EXPECT_LT(Arrive(), now + kAtOnce);
  for (int i = 0; i < 5; ++i) peer_.lane.Progress();
  EXPECT_GE(peer_.lane.RunHelper(), now + 20 * kMicrosecond);
  now += 50 * kMicrosecond;  // it has stopped
  EXPECT_LT(Arrive(), now + kAtOnce);
}

// A busy-polling helper notices each single poll. One poll alone must not end
// busy polling.
TEST_F(SpinTest, OnePollDoesNotEndBusyPolling) {
  EXPECT_LT(Arrive(), now + kAtOnce);
  for (int i = 0; i < 10; ++i) {
    now += kMicrosecond;
    if (i % 4 == 0) peer_.lane.Progress();
    EXPECT_LT(peer_.lane.RunHelper(), now + kAtOnce) << i;
  }
  peer_.lane.Progress();
  EXPECT_GT(peer_.lane.RunHelper(), now + kAtOnce);
}

// Its own transmissions and retransmissions do not start busy polling.
TEST_F(SpinTest, NoBusyPollingAfterItsOwnSends) {
  peer_.port->is_blocked = peer_.port->block_next = true;
  peer_.Post();
  now += kMillisecond;
  peer_.port->is_blocked = peer_.port->block_next = false;
  const size_t bursts = peer_.port->packets.size();
  EXPECT_GT(peer_.lane.RunHelper(), now + kAtOnce);
  EXPECT_EQ(peer_.port->packets.size(), bursts + 1);
}

// With adaptive arming the sockets wake the helper instead.
TEST_F(SpinTest, NoBusyPollingWithAdaptiveArming) {
  const auto arrive = [&] {
    for (int polls = 0; polls < 4; ++polls) peer_.lane.Progress();
    peer_.lane.RunHelper();
    Post();
    lane_.RunHelper();
    now += 25 * kMicrosecond;
    return peer_.lane.RunHelper();
  };
  for (int i = 0; i < 10 && peer_.lane.mode() != Mode::kPolling; ++i) arrive();
  ASSERT_EQ(peer_.lane.mode(), Mode::kPolling);
  ASSERT_TRUE(peer_.helper.armed);
  EXPECT_GT(arrive(), now + kAtOnce);
  EXPECT_TRUE(peer_.helper.armed);
}

// If the application has answered the last messages at once, the ACK is held
// for its answer, however often the helper polls meanwhile.
TEST_F(SpinTest, LeavesTheAckToTheAnswer) {
  const std::vector<int>& sent = peer_.port->packets;
  for (int i = 0; i < 8; ++i) {
    now += kMillisecond;
    const size_t before = sent.size();
    Arrive();
    for (int us = 0; us < 30; ++us) {
      now += kMicrosecond;
      peer_.lane.RunHelper();
    }
    peer_.Post();
    // Once the lane has learned this, both are sent together.
    if (i >= 4) {
      EXPECT_EQ(sent.size(), before + 1) << i;
    }
    lane_.RunHelper();
    peer_.lane.RunHelper();
    lane_.RunHelper();
  }
  // No answer follows this time.
  now += kMillisecond;
  const size_t before = sent.size();
  Arrive();
  now += 199 * kMicrosecond;
  peer_.lane.RunHelper();
  EXPECT_EQ(sent.size(), before);
  now += kMicrosecond;
  peer_.lane.RunHelper();
  EXPECT_EQ(sent.size(), before + 1);
}

TEST_F(SpinTest, NoBusyPollingBesideAWaitingThread) {
  peer_.lane.EnterWait();
  EXPECT_GT(Arrive(), now + kAtOnce);
  peer_.lane.LeaveWait();
  EXPECT_LT(Arrive(), now + kAtOnce);
}

}  // namespace
}  // namespace rxe_user
