// Which posts a lane leaves to share a send, on a virtual clock, and when they
// go.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "rxe_user/testing/lane_end.h"

namespace rxe_user {
namespace {

using transport::kMicrosecond;
using transport::kMillisecond;
using transport::Time;

Time& now = virtual_now;

// One that posts again as often as it has polled a completion, 100 posts in a
// row, to one that polls, for `waves` times. Each call takes 0.1 us, sending
// takes 10 us.
class BurstTest : public LaneTest {
 protected:
  void SetUp() override {
    LaneTest::SetUp();
    Join(&peer_);
    port_->send_cost = 10 * kMicrosecond;
  }
  void Pass() {
    now += kMicrosecond / 10;
    end_.LetHelperRun();
    peer_.lane.Progress();
    peer_.LetHelperRun();
  }
  void Waves(int waves) {
    for (int i = 0; i < waves; ++i) {
      for (int posts = 0; posts < 100; ++posts) {
        Post();
        ++outstanding_;
        Pass();
      }
      while (outstanding_ > 28) {
        lane_.Progress();
        while (end_.cq.Poll()) --outstanding_;
        Pass();
      }
    }
  }
  // Both go on, but this end's application makes no call.
  void Away(Time how_long) {
    for (const Time until = now + how_long; now < until; now += kMicrosecond) {
      Pass();
    }
  }
  // Packets in a burst, on average, of so many waves.
  double PacketsInABurst(int waves) {
    const size_t bursts = port_->packets.size();
    const int packets = PacketsSent();
    Waves(waves);
    return double(PacketsSent() - packets) /
           double(port_->packets.size() - bursts);
  }

  LaneEnd peer_;
  int outstanding_ = 0;
};

TEST_F(BurstTest, PostsShareSends) {
  Waves(1);
  // The first of a wave goes at once, then 48, 48 and 3.
  EXPECT_GE(PacketsInABurst(100), 25);
  // Posting renews the lease.
  EXPECT_EQ(lane_.counters().missed_arrivals, 0u);
  EXPECT_LE(helper_.wakes, 2);
}

// The one that asks for a completion, of many that do not, is what the
// application waits for when it has no more room: it goes at once, and what
// follows is posted while the peer is at it.
TEST_F(BurstTest, TheOneThatIsWaitedForGoesAtOnce) {
  Waves(10);
  const auto post = [&](int count, bool signaled) {
    for (int i = 0; i < count; ++i) end_.PostLocked(signaled);
  };
  const auto sent_after = [&](int silent) {
    lane_.Progress();
    const Lane::Guard guard(lane_);
    post(1, true);
    lane_.Transmit(now);
    const int before = PacketsSent();
    post(silent, false);
    EXPECT_EQ(PacketsSent(), before);
    post(1, true);
    return PacketsSent() - before;
  };
  EXPECT_EQ(sent_after(16), 17);
  EXPECT_EQ(sent_after(15), 0);  // what is sent by twos and tens is left
}

// Each queue pair has bursts of its own.
TEST_F(BurstTest, MoreAreLeftForMoreQueuePairs) {
  Waves(10);
  const auto sent_after = [&](int posts) {
    const Lane::Guard guard(lane_);
    const int before = PacketsSent();
    for (int i = 0; i < posts; ++i) {
      end_.PostLocked();
      if (!end_.others.empty()) {
        std::swap(end_.qp, end_.others[size_t(i) % end_.others.size()]);
      }
    }
    return PacketsSent() - before;
  };
  sent_after(1);
  {
    const Lane::Guard guard(lane_);
    lane_.Transmit(now);
  }
  EXPECT_EQ(sent_after(47), 0);
  EXPECT_EQ(sent_after(1), 48);
  end_.Connect(kQpn + 1, kPeerQpn + 1, "10.0.0.1", "10.0.0.2");
  EXPECT_EQ(sent_after(95), 0);
  EXPECT_EQ(sent_after(1), 96);
  // But no more than for four: others wait for them, too.
  for (uint32_t i = 2; i < 6; ++i) {
    end_.Connect(kQpn + i, kPeerQpn + i, "10.0.0.1", "10.0.0.2");
  }
  EXPECT_EQ(sent_after(191), 0);
  EXPECT_EQ(sent_after(1), 192);
}

TEST_F(BurstTest, AThreadThatLosesItsCoreIsNotTakenForOneThatStops) {
  Waves(10);
  for (int i = 0; i < 10; ++i) {
    Away(3 * kMillisecond);
    Waves(1);  // polling mode begins again
    EXPECT_GT(PacketsInABurst(10), 30) << i;
  }
}

// One that has lost its core so often that it is taken for one that waits for
// its memory is known by what it posts in long rows.
TEST_F(BurstTest, OneThatIsTakenToWaitForItsMemoryShares) {
  ActivateAdaptiveArming(&peer_);
  Waves(1);
  EXPECT_FALSE(helper_.armed);
  EXPECT_GE(PacketsInABurst(1), 25);
}

// One that posts and then makes no call, for it computes: whatever it did
// before, what it posted is on the wire 50 us later, helper and lane being
// free.
class DeadlineTest : public BurstTest {
 protected:
  static constexpr Time kPromise = 50 * kMicrosecond;

  void Polls(Time how_long) {
    for (const Time until = now + how_long; now < until; now += kMicrosecond) {
      lane_.Progress();
      while (end_.cq.Poll()) --outstanding_;
      Pass();
    }
  }
  // A row of posts, and how long the first of them was left.
  Time LeftFor(int posts) {
    const int goal = PacketsSent() + posts;
    const Time begin = now;
    for (int i = 0; i < posts; ++i) {
      Post();
      ++outstanding_;
      now += kMicrosecond / 10;
    }
    while (PacketsSent() < goal && now < begin + 10 * kMillisecond) {
      end_.LetTimePass(kMicrosecond / 10);
    }
    return now - begin;
  }
};

TEST_F(DeadlineTest, HoldsAfterALongTimeOfPolling) {
  port_->send_cost = 0;
  for (const int posts : {1, 2, 3, 4, 5, 6, 20, 40}) {
    Polls(10 * kMillisecond);
    LeftFor(posts);  // it is seen to post in rows
    Polls(10 * kMillisecond);
    EXPECT_LE(LeftFor(posts), kPromise) << posts;
  }
}

TEST_F(DeadlineTest, HoldsInTheMiddleOfAStream) {
  Waves(10);
  port_->send_cost = 0;
  for (int posts = 1; posts <= 40; ++posts) {
    Waves(2);
    EXPECT_LE(LeftFor(posts), kPromise) << posts;
  }
  EXPECT_GT(lane_.counters().posts_batched, 1000u);
}

// Nor does one that has been seen to wait for its memory poll soon.
TEST_F(DeadlineTest, HoldsWhileTheSocketsAreArmed) {
  port_->send_cost = 0;
  for (int posts = 1; posts <= 40; ++posts) {
    ActivateAdaptiveArming(&peer_);
    helper_.Wake();
    end_.LetHelperRun();
    ASSERT_TRUE(helper_.armed);
    EXPECT_LE(LeftFor(posts), kPromise) << posts;
    for (int i = 0; i < 100; ++i) Pass();
    while (end_.cq.Poll()) --outstanding_;
  }
}

// Posts that come one by one, each of them long after the one before.
TEST_F(DeadlineTest, HoldsForATrickle) {
  Waves(10);
  port_->send_cost = 0;
  for (int i = 0; i < 100; ++i) {
    const int before = PacketsSent();
    Post();
    end_.LetTimePass(kPromise);
    ASSERT_GE(PacketsSent(), before + 1) << i;
    peer_.lane.Progress();  // acknowledges
    peer_.LetHelperRun();
    end_.LetTimePass(Time{i} * kMicrosecond);
  }
}

// The helper stays near while there are batches, so that none has to call it.
TEST_F(DeadlineTest, TakesNoCallForEachBatch) {
  Waves(10);
  const uint64_t calls = lane_.counters().helper_wakes;
  const uint64_t batched = lane_.counters().posts_batched;
  Waves(100);
  EXPECT_GT(lane_.counters().posts_batched, batched + 9000);
  EXPECT_LE(lane_.counters().helper_wakes, calls + 1);
}

// A post that is larger than a round goes out as far as the window lets it, not
// when the application polls next.
TEST_F(DeadlineTest, HoldsForALargePost) {
  std::vector<uint8_t> from(400 << 10);
  std::vector<uint8_t> to(from.size());
  EnterPollingMode();
  const size_t before = port_->packets.size();
  {
    const Lane::Guard guard(lane_);
    end_.PostLocked({reinterpret_cast<uint64_t>(from.data()),
                     static_cast<uint32_t>(from.size()), 1},
                    to.data());
    EXPECT_FALSE(lane_.endpoint().HasTransmit());
  }
  EXPECT_GT(port_->packets.size(), before);
}

// Whatever made it seem so, an application that comes back at once, always, is
// found out.
TEST_F(BurstTest, AdaptiveArmingEnds) {
  Waves(10);
  for (int i = 0; i < 4; ++i) {
    // Just long enough to miss what arrives, and to be found polling again.
    for (int j = 0; j < 12; ++j) Post();
    outstanding_ += 12;
    Away(15 * kMicrosecond);
    for (int polls = 0; polls < 8; ++polls) lane_.Progress();
    while (end_.cq.Poll()) --outstanding_;
  }
  Waves(40);
  EXPECT_GT(PacketsInABurst(10), 30);
}

}  // namespace
}  // namespace rxe_user
