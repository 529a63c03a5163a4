// Which posts a lane batches, and when it sends them, on a virtual clock.
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

// An application that posts 100 requests in a row and polls a completion for
// each, against a peer that polls. Each call takes 0.1 us, sending takes 10 us.
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
  // Time passes at both ends, but this end's application makes no call.
  void Away(Time how_long) {
    for (const Time until = now + how_long; now < until; now += kMicrosecond) {
      Pass();
    }
  }
  // The average number of packets in a burst, over `waves` waves.
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
  // The first post of a wave is sent at once, followed by bursts of 48, 48 and
  // 3.
  EXPECT_GE(PacketsInABurst(100), 25);
  // Posting renews the lease.
  EXPECT_EQ(lane_.counters().missed_arrivals, 0u);
  EXPECT_LE(helper_.wakes, 2);
}

// The one signaled request among many is what the application waits for when
// its send queue is full. It is sent at once, so the application posts the next
// ones while the peer processes it.
TEST_F(BurstTest, TheSignaledRequestIsSentAtOnce) {
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
  EXPECT_EQ(sent_after(15), 0);  // groups of two to ten are batched
}

// Each queue pair fills its own bursts.
TEST_F(BurstTest, BatchesGrowWithTheQueuePairs) {
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
  // The limit grows up to four queue pairs, since the others wait meanwhile.
  for (uint32_t i = 2; i < 6; ++i) {
    end_.Connect(kQpn + i, kPeerQpn + i, "10.0.0.1", "10.0.0.2");
  }
  EXPECT_EQ(sent_after(191), 0);
  EXPECT_EQ(sent_after(1), 192);
}

TEST_F(BurstTest, APreemptedThreadStillCountsAsPolling) {
  Waves(10);
  for (int i = 0; i < 10; ++i) {
    Away(3 * kMillisecond);
    Waves(1);  // back to polling mode
    EXPECT_GT(PacketsInABurst(10), 30) << i;
  }
}

// An application that was preempted so often that adaptive arming became active
// is recognized by its long rows of posts.
TEST_F(BurstTest, LongRowsOfPostsEndAdaptiveArming) {
  ActivateAdaptiveArming(&peer_);
  Waves(1);
  EXPECT_FALSE(helper_.armed);
  EXPECT_GE(PacketsInABurst(1), 25);
}

// The application posts and then computes, without a call. Whatever it did
// before, its posts are on the wire after 50 us if the helper and the lane are
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
  // Posts `posts` times in a row. Returns how long the first post waited.
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
    LeftFor(posts);  // the batcher learns that it posts in rows
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

// The promise also holds for an application that waits for its memory to
// change, and so need not poll soon.
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

// Single posts with long gaps.
TEST_F(DeadlineTest, HoldsForSinglePosts) {
  Waves(10);
  port_->send_cost = 0;
  for (int i = 0; i < 100; ++i) {
    const int before = PacketsSent();
    Post();
    end_.LetTimePass(kPromise);
    ASSERT_GE(PacketsSent(), before + 1) << i;
    peer_.lane.Progress();  // sends the ACK
    peer_.LetHelperRun();
    end_.LetTimePass(Time{i} * kMicrosecond);
  }
}

// While there are batches, the helper wakes often enough by itself.
TEST_F(DeadlineTest, WakesNoHelperForEachBatch) {
  Waves(10);
  const uint64_t calls = lane_.counters().helper_wakes;
  const uint64_t batched = lane_.counters().posts_batched;
  Waves(100);
  EXPECT_GT(lane_.counters().posts_batched, batched + 9000);
  EXPECT_LE(lane_.counters().helper_wakes, calls + 1);
}

// A post larger than a round is sent as far as the window allows, without
// waiting for the next poll.
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

// Adaptive arming ends when the application keeps polling, whatever activated
// it.
TEST_F(BurstTest, AdaptiveArmingEnds) {
  Waves(10);
  for (int i = 0; i < 4; ++i) {
    // Just long enough that an arrival is missed and the application is then
    // found polling again.
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
