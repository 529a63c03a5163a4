#include "transport/congestion/path.h"

#include "gtest/gtest.h"

namespace transport {
namespace {

constexpr uint64_t kBegin = Path::kInitialWindow;

TEST(PathTest, OnePacketMayAlwaysBeInFlight) {
  Path path;
  EXPECT_TRUE(path.MaySend(10 * kBegin));
  path.OnSent(1);
  EXPECT_TRUE(path.MaySend(kBegin - 1));
  EXPECT_FALSE(path.MaySend(kBegin));
}

TEST(PathTest, SlowStartThenLinear) {
  Path path;
  uint64_t acknowledged = 0;
  Time now = 0;
  while (path.window() < 384 * 1024) {
    path.OnSent(path.window());
    const uint64_t bytes = path.window();
    path.OnGone(bytes);
    path.OnAcknowledged(bytes, now += kMillisecond);
    acknowledged += bytes;
  }
  EXPECT_EQ(acknowledged, (128 + 256) * 1024u);
  const uint64_t at = path.window();
  path.OnSent(at);
  path.OnGone(at);
  path.OnAcknowledged(at, now += kMillisecond);
  EXPECT_EQ(path.window(), at + 4096 + Path::kPacketOverhead);
  for (int i = 0; i < 10000; ++i) path.OnAcknowledged(path.window(), now);
  EXPECT_EQ(path.window(), Path::kMaxWindow);
}

TEST(PathTest, AnUnusedWindowDoesNotGrow) {
  Path path;
  path.OnSent(1000);
  path.OnGone(1000);
  path.OnAcknowledged(1000, 0);
  EXPECT_EQ(path.window(), kBegin);
}

TEST(PathTest, LossShrinksOncePerRoundTrip) {
  Path path;
  path.OnRttSample(kMillisecond, 0);
  path.OnLoss(10 * kMillisecond);
  const uint64_t once = path.window();
  EXPECT_NEAR(once, kBegin * 0.7, 16);
  path.OnLoss(11 * kMillisecond - 1);
  path.OnCongestionNotification(11 * kMillisecond - 50 * kMicrosecond);
  EXPECT_EQ(path.window(), once);
  path.OnCongestionNotification(11 * kMillisecond);
  EXPECT_NEAR(path.window(), once * 0.75, 16);
}

// 1,250 bytes per microsecond with a round trip of 50 us.
void Flow(Path* path, Time from, Time until) {
  for (Time now = from; now <= until; now += 50 * kMicrosecond) {
    path->OnRttSample(50 * kMicrosecond, now);
    path->OnSent(62'500);
    path->OnGone(62'500);
    path->OnAcknowledged(62'500, now);
  }
}

TEST(PathTest, LossLeavesTwoBandwidthDelayProducts) {
  Path path;
  for (int ms = 1; ms < 100; ++ms) {
    Flow(&path, ms * kMillisecond, (ms + 1) * kMillisecond - 1);
    path.OnLost(1280);
    path.OnLoss((ms + 1) * kMillisecond - 1);
  }
  EXPECT_NEAR(path.round_trip_bytes(), 62'500, 6'000);
  EXPECT_GE(path.window(), 2 * path.round_trip_bytes());
  EXPECT_LT(path.window(), 3 * path.round_trip_bytes());
}

TEST(PathTest, HeavyLossLeavesLess) {
  Path path;
  for (int ms = 1; ms < 100; ++ms) {
    Flow(&path, ms * kMillisecond, (ms + 1) * kMillisecond - 1);
    path.OnLost(125'000);  // 10 %
    path.OnLoss((ms + 1) * kMillisecond - 1);
  }
  EXPECT_LT(path.window(), 2 * path.round_trip_bytes());
}

TEST(PathTest, EarlyProbesAfterALoss) {
  Path path;
  EXPECT_EQ(path.EarlyProbeTimeout(kSecond), kNever);
  path.OnRttSample(50 * kMicrosecond, kSecond);
  EXPECT_EQ(path.EarlyProbeTimeout(kSecond), kNever);
  path.OnLoss(kSecond);
  EXPECT_EQ(path.EarlyProbeTimeout(kSecond), 150 * kMicrosecond);
  EXPECT_EQ(path.EarlyProbeTimeout(kSecond + 101 * kMillisecond), kNever);
}

TEST(PathTest, NeverBelowTheMinimum) {
  Path path;
  for (int i = 1; i < 100; ++i) path.OnLoss(i * kSecond);
  EXPECT_EQ(path.window(), Path::kMinWindow);
}

// At most one notification per 50 us counts, however many arrive for however
// many queue pairs.
TEST(PathTest, AStormOfNotificationsCountsAsOneIn50us) {
  for (const Time until : {200 * kMicrosecond, 5 * kMillisecond}) {
    Path few;
    Path storm;
    for (Path* const path : {&few, &storm}) {
      path->OnRttSample(50 * kMicrosecond, 0);
    }
    for (Time now = 0; now < until; now += 50 * kMicrosecond) {
      EXPECT_TRUE(few.OnCongestionNotification(now));
    }
    int counted = 0;
    for (Time now = 0; now < until; now += 100) {
      if (storm.OnCongestionNotification(now)) ++counted;
    }
    // One may be a little early.
    EXPECT_LE(counted, until / (50 * kMicrosecond) + 1);
    EXPECT_NEAR(storm.window(), few.window(), few.window() / 20) << until;
    // It also recovers in the same time, or an interval later.
    Time now = until;
    Time few_back = 0;
    while (storm.window() < 60'000) {
      if (few.window() < 60'000) few_back = now;
      now += 50 * kMicrosecond;
      for (Path* const path : {&few, &storm}) {
        path->OnSent(path->window());
        path->OnGone(path->window());
        path->OnAcknowledged(path->window(), now);
      }
      ASSERT_LT(now, until + kSecond);
    }
    EXPECT_LE(now - few_back, 200 * kMicrosecond);
    EXPECT_LE(now - until, 150 * kMillisecond);
  }
}

// The network does not preserve the interval between CNPs.
TEST(PathTest, NotificationsMayComeALittleEarly) {
  Path path;
  path.OnRttSample(50 * kMicrosecond, 0);
  Time now = 0;
  for (int i = 0; i < 100; ++i) {
    now = i * 50 * kMicrosecond + (i % 2 == 0 ? 20 * kMicrosecond : 0);
    EXPECT_TRUE(path.OnCongestionNotification(now)) << i;
  }
}

// A quarter of a packet per round trip: one packet every four round trips.
TEST(PathTest, AWindowOfLessThanAPacketIsAPacketAndAPause) {
  constexpr uint64_t kPacket = 1024 + Path::kPacketOverhead;
  Path path;
  Time now = 0;
  const auto round_trip = [&] {
    path.OnSent(kPacket);
    now += kMillisecond;
    path.OnRttSample(kMillisecond, now);
    path.OnGone(kPacket);
  };
  round_trip();
  while (path.window() > kPacket / 4) {
    now += kMillisecond;
    path.OnCongestionNotification(now);
  }
  round_trip();
  const uint64_t window = path.window();
  path.OnAcknowledged(kPacket, now);
  ASSERT_EQ(path.window(), window);
  ASSERT_TRUE(path.paused());
  EXPECT_FALSE(path.MaySend(1));
  EXPECT_EQ(path.MaySendPackets(kPacket), 0u);
  const Time sent = now - kMillisecond;
  EXPECT_NEAR(path.paused_until() - sent, kMillisecond * kPacket / window, 2);
  EXPECT_GE(path.paused_until() - sent, 4 * kMillisecond);
  EXPECT_FALSE(path.EndPause(path.paused_until() - 1));
  // Waiting queue pairs must learn of its end.
  EXPECT_TRUE(path.TakeOpened());
  EXPECT_TRUE(path.EndPause(path.paused_until()));
  EXPECT_FALSE(path.paused());
  EXPECT_TRUE(path.MaySend(kPacket));
  EXPECT_EQ(path.in_flight(), 0u);
}

// Bytes in flight from before CNPs shrank the window do not prolong the pause,
// and it ends once the window holds a packet.
TEST(PathTest, APauseIsForOnePacketAndEndsWhenTheWindowHoldsOne) {
  constexpr uint64_t kPacket = 4096 + Path::kPacketOverhead;
  Path path;
  Time now = kMillisecond;
  path.OnRttSample(kMillisecond, now);
  while (path.window() > 64) {
    now += kMillisecond;
    path.OnCongestionNotification(now);
  }
  const uint64_t window = path.window();
  path.OnAcknowledged(64 * 1024, now);
  ASSERT_TRUE(path.paused());
  EXPECT_LE(path.paused_until() - now, kMillisecond * kPacket / window);
  EXPECT_EQ(path.in_flight(), kPacket);

  for (int i = 0; i < 100'000 && path.window() < kPacket; ++i) {
    EXPECT_FALSE(path.EndPause(now));
    now += 50 * kMicrosecond;
    path.OnAcknowledged(kPacket, now);
  }
  ASSERT_GE(path.window(), kPacket);
  ASSERT_LT(now, path.paused_until());
  EXPECT_TRUE(path.EndPause(now));
  EXPECT_EQ(path.in_flight(), 0u);

  // The next pause starts from zero.
  while (path.window() > 64) {
    now += kMillisecond;
    path.OnCongestionNotification(now);
  }
  path.OnAcknowledged(kPacket, now);
  EXPECT_LE(path.paused_until() - now, kMillisecond * kPacket / path.window());
}

// A round trip that was long because the peer was stopped says nothing about
// the network.
TEST(PathTest, APauseIsNotLongerThanAtTheMinimumRate) {
  constexpr uint64_t kPacket = 4096 + Path::kPacketOverhead;
  Path path;
  Time now = 10 * kSecond;
  path.OnRttSample(10 * kSecond, now);
  while (path.window() > 64) {
    now += 20 * kSecond;
    path.OnCongestionNotification(now);
  }
  for (Time packets = 1; packets <= 3; ++packets) {
    path.OnAcknowledged(kPacket, now);
    ASSERT_TRUE(path.paused());
    EXPECT_EQ(path.paused_until() - now,
              packets * static_cast<Time>(kPacket) * Path::kMinRateByte);
  }
  EXPECT_TRUE(path.EndPause(path.paused_until()));
}

TEST(PathTest, TimeoutsInARowLeaveOnePacket) {
  Path path;
  for (int i = 1; i < 20; ++i) {
    path.OnTimeout(i * kSecond);
    if (i == 1) {
      EXPECT_EQ(path.window(), Path::kMinWindow);
    }
  }
  EXPECT_EQ(path.window(), 4096 + Path::kPacketOverhead);
}

TEST(PathTest, TimeoutRestartsSlowStartTowardsHalf) {
  Path path;
  path.OnTimeout(kSecond);
  EXPECT_EQ(path.window(), Path::kMinWindow);
  Time now = 2 * kSecond;
  // Doubles each round trip up to half of its former size, then grows slowly.
  for (int i = 0; i < 2; ++i) path.OnAcknowledged(path.window(), ++now);
  EXPECT_EQ(path.window(), kBegin / 2);
  path.OnAcknowledged(path.window(), ++now);
  EXPECT_EQ(path.window(), kBegin / 2 + 4096 + Path::kPacketOverhead);
}

TEST(PathTest, AnEarlyTimeoutIsUndone) {
  Path path;
  path.OnTimeout(kSecond);
  path.OnTimeout(2 * kSecond);
  path.OnAcknowledged(path.window(), 3 * kSecond);
  path.UndoTimeout();
  EXPECT_EQ(path.window(), kBegin);
  path.UndoTimeout();
  EXPECT_EQ(path.window(), kBegin);
  // After a loss it is not undone.
  path.OnTimeout(4 * kSecond);
  path.OnLoss(5 * kSecond);
  path.UndoTimeout();
  EXPECT_EQ(path.window(), Path::kMinWindow);
  // After the window has recovered its size it is not undone either.
  path.OnTimeout(6 * kSecond);
  for (int i = 7; i < 20; ++i) path.OnAcknowledged(path.window(), i * kSecond);
  const uint64_t found = path.window();
  path.UndoTimeout();
  EXPECT_EQ(path.window(), found);
}

TEST(PathTest, MoreGoneThanInFlightGivesZero) {
  Path path;
  path.OnSent(5);
  path.OnGone(6);
  EXPECT_EQ(path.in_flight(), 0u);
}

TEST(PathTest, UnansweredBytesDoNotUseTheWindow) {
  Path path;
  path.OnSent(kBegin);
  EXPECT_FALSE(path.MaySend(1));
  path.TakeOpened();
  const uint32_t before = path.silences();
  path.OnSilence(kBegin, true);
  EXPECT_TRUE(path.TakeOpened());  // for waiting queue pairs
  EXPECT_NE(path.silences(), before);
  EXPECT_EQ(path.in_flight(), kBegin);
  EXPECT_EQ(path.room(), kBegin);
  // A retransmission is in flight, and does not count in the window.
  path.OnGoneUnanswered(kBegin);
  path.OnSentUnanswered(5000);
  EXPECT_EQ(path.in_flight(), 5000u);
  EXPECT_TRUE(path.has_unanswered());
  EXPECT_EQ(path.room(), kBegin);
  path.OnAnswer(5000);
  EXPECT_FALSE(path.has_unanswered());
  EXPECT_EQ(path.in_flight(), 5000u);
  EXPECT_EQ(path.room(), kBegin - 5000);
  // A second silence without an answer in between does not count.
  const uint32_t after = path.silences();
  path.OnSilence(5000, false);
  EXPECT_EQ(path.silences(), after);
}

TEST(PathTest, TheShareIsDividedByTheQueuePairs) {
  Path path;
  EXPECT_EQ(path.share(), kBegin);
  for (int i = 0; i < 4; ++i) path.Join();
  EXPECT_EQ(path.share(), kBegin / 4);
  EXPECT_FALSE(path.Leave());
  EXPECT_EQ(path.share(), kBegin / 3);
  path.Leave();
  path.Leave();
  EXPECT_TRUE(path.Leave());
}

TEST(PathTest, RemembersAnswersAndLosses) {
  Path path;
  EXPECT_FALSE(path.answered());
  path.OnAcknowledged(1, 100);
  EXPECT_TRUE(path.answered());
  EXPECT_TRUE(path.AnsweredSince(99));
  EXPECT_FALSE(path.AnsweredSince(100));
  EXPECT_FALSE(path.LostSince(0));
  path.OnLoss(200);
  EXPECT_TRUE(path.LostSince(199));
  EXPECT_FALSE(path.LostSince(200));
}

TEST(PathTest, ProbeTimeoutFollowsRfc6298) {
  Path path;
  EXPECT_EQ(path.ProbeTimeout(), 4 * kMillisecond);
  path.OnRttSample(8 * kMillisecond, 0);
  EXPECT_EQ(path.ProbeTimeout(), (8 + 4 * 4) * kMillisecond);
  path.OnRttSample(16 * kMillisecond, 0);
  // Variation 4 + (8 - 4) / 4 = 5; smoothed 8 + 8 / 8 = 9.
  EXPECT_EQ(path.ProbeTimeout(), (9 + 4 * 5) * kMillisecond);
  // 5.7: stays backed off until there is a sample.
  path.OnProbesAnswered(2);
  EXPECT_EQ(path.ProbeTimeout(), 4 * (9 + 4 * 5) * kMillisecond);
  for (int i = 0; i < 20; ++i) path.OnProbesAnswered(1);
  EXPECT_EQ(path.ProbeTimeout(), kSecond);
  path.OnRttSample(9 * kMillisecond, 0);
  EXPECT_LT(path.ProbeTimeout(), 29 * kMillisecond);
  Path near;
  near.OnRttSample(10 * kMicrosecond, 0);
  EXPECT_EQ(near.ProbeTimeout(), kMillisecond);
  near.OnRttSample(-5, 0);  // a clock that went backwards
  EXPECT_GT(near.smoothed_rtt(), 0);
}

TEST(PathTest, CountsThePacketsThatMayBeSent) {
  constexpr uint64_t kPacket = 4096 + Path::kPacketOverhead;
  for (const uint64_t in_flight :
       {uint64_t{0}, uint64_t{1}, kBegin / 2, kBegin - kPacket,
        kBegin - kPacket + 1, kBegin, 2 * kBegin}) {
    for (const uint64_t bytes : {kPacket, kBegin, 2 * kBegin}) {
      Path path;
      path.OnSent(in_flight);
      const uint64_t packets = path.MaySendPackets(bytes);
      uint64_t sent = 0;
      for (; path.MaySend(bytes); ++sent) path.OnSent(bytes);
      EXPECT_EQ(packets, sent) << in_flight << " in flight, " << bytes;
    }
  }
}

}  // namespace
}  // namespace transport
