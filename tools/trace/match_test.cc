#include "tools/trace/match.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <random>

namespace trace {
namespace {

constexpr size_t kNone = Match::kNone;
using Places = std::vector<size_t>;
using Sightings = std::vector<Sighting>;

TEST(MatchTest, PacketsThatDiffer) {
  const Match m = MatchPackets(Sightings{{1, 0}, {2, 1}, {3, 2}},
                               Sightings{{1, 10}, {3, 12}});
  EXPECT_EQ(m.received, (Places{0, kNone, 1}));
  EXPECT_EQ(m.sent, (Places{0, 2}));
}

// Packets 1 to 3: packet 2 is lost, and because of the NAK, 2 and 3 are sent
// again.
TEST(MatchTest, GoBackN) {
  const Match m =
      MatchPackets(Sightings{{1, 0}, {2, 1}, {3, 2}, {2, 100}, {3, 101}},
                   Sightings{{1, 10}, {3, 12}, {2, 110}, {3, 111}});
  EXPECT_EQ(m.received, (Places{0, kNone, 1, 2, 3}));
  EXPECT_EQ(std::count(m.ambiguous.begin(), m.ambiguous.end(), true), 0);
}

// The first copy is lost. Matching the earliest equal packet would be wrong.
TEST(MatchTest, OfEqualPacketsTheLeastDelay) {
  const Match m = MatchPackets(Sightings{{1, 0}, {2, 5}, {1, 1000}},
                               Sightings{{2, 15}, {1, 1010}});
  EXPECT_EQ(m.received, (Places{kNone, 0, 1}));
}

TEST(MatchTest, NothingArrivesBeforeItIsSent) {
  const Match m = MatchPackets(Sightings{{1, 50}}, Sightings{{1, 40}});
  EXPECT_EQ(m.received, Places{kNone});
  EXPECT_EQ(m.sent, Places{kNone});
  EXPECT_EQ(m.duplicate_of, Places{kNone});
}

TEST(MatchTest, AnOvertakenPacket) {
  const Match m = MatchPackets(Sightings{{1, 0}, {2, 1}, {3, 2}, {4, 3}},
                               Sightings{{2, 11}, {3, 12}, {4, 13}, {1, 20}});
  EXPECT_EQ(m.received, (Places{3, 0, 1, 2}));
  EXPECT_EQ(m.overtaken, (std::vector<bool>{true, false, false, false}));
}

TEST(MatchTest, ACopyThatWasMadeOnTheWay) {
  const Match m = MatchPackets(Sightings{{1, 0}, {2, 1}},
                               Sightings{{1, 10}, {1, 11}, {2, 12}});
  EXPECT_EQ(m.duplicate_of.size(), 3u);
  EXPECT_EQ(std::count(m.duplicate_of.begin(), m.duplicate_of.end(), 0u), 1);
  EXPECT_EQ(m.received[1], 2u);
}

// Two equal packets in short succession, one of which arrives: it is unknown
// which.
TEST(MatchTest, AmbiguousCopies) {
  const Match m = MatchPackets(Sightings{{9, 0}, {1, 10}, {1, 12}, {8, 20}},
                               Sightings{{9, 30}, {1, 40}, {8, 50}});
  EXPECT_EQ(m.received, (Places{0, kNone, 1, 2}));
  EXPECT_EQ(m.ambiguous, (std::vector<bool>{false, true, true, false}));
}

// Blocks of equal packets, one of which is lost as a whole.
TEST(MatchTest, AmbiguousBlocks) {
  const Match m = MatchPackets(
      Sightings{
          {9, -200}, {1, -190}, {2, -189}, {1, 20}, {2, 21}, {1, 30}, {2, 31}},
      Sightings{{9, -150}, {1, 70}, {2, 71}, {1, 80}, {2, 81}});
  EXPECT_EQ(m.received, (Places{0, kNone, kNone, 1, 2, 3, 4}));
  // If the first block had arrived, its delay would be 260: too long beside the
  // 50 of the matches.
  EXPECT_EQ(m.ambiguous, std::vector<bool>(7, false));
  const Match likely = MatchPackets(
      Sightings{{9, 0}, {1, 10}, {2, 11}, {1, 20}, {2, 21}, {1, 30}, {2, 31}},
      Sightings{{9, 50}, {1, 70}, {2, 71}, {1, 80}, {2, 81}});
  EXPECT_EQ(likely.ambiguous,
            (std::vector<bool>{false, true, true, true, true, true, true}));
}

// A copy is made on the way, and the packets after it are late: nothing is
// lost.
TEST(MatchTest, AsManyReceivedAsSent) {
  const Match m = MatchPackets(Sightings{{1, 0}, {2, 1}, {1, 50}},
                               Sightings{{1, 40}, {2, 45}, {1, 60}});
  EXPECT_EQ(std::count(m.received.begin(), m.received.end(), kNone), 0);
  const Match late =
      MatchPackets(Sightings{{3, 0}, {1, 1}, {2, 2}, {1, 50}},
                   Sightings{{1, 30}, {3, 40}, {1, 60}, {2, 70}});
  EXPECT_EQ(std::count(late.received.begin(), late.received.end(), kNone), 0);
}

TEST(MatchTest, ManyEqualPacketsAreQuick) {
  Sightings sent, received;
  for (int i = 0; i < 20'000; ++i) {
    sent.push_back({7, i * 10});
    if (i % 2 == 0) received.push_back({7, i * 10 + 5});
  }
  const Match m = MatchPackets(sent, received);
  EXPECT_EQ(std::count(m.sent.begin(), m.sent.end(), kNone), 0);
  for (size_t j = 0; j < received.size(); ++j) EXPECT_EQ(m.sent[j], j * 2);
}

// The writer of a capture can choose the number of equal packets.
TEST(MatchTest, ManyEqualPacketsWithoutAPartnerAreQuick) {
  constexpr int kMany = 300'000;
  Sightings early, late;
  for (int i = 0; i < kMany; ++i) {
    early.push_back({7, i});
    late.push_back({7, kMany + i});
  }
  const std::clock_t begin = std::clock();
  const Match none = MatchPackets(late, early);
  EXPECT_EQ(std::count(none.sent.begin(), none.sent.end(), kNone), kMany);
  EXPECT_LT((std::clock() - begin) / CLOCKS_PER_SEC, 20);
}

TEST(MatchTest, ASecondCopyIsOfTheLastOneThatWasSent) {
  const Match m = MatchPackets(Sightings{{1, 0}, {1, 10}, {1, 100}},
                               Sightings{{1, 1}, {1, 11}, {1, 12}, {1, 101}});
  EXPECT_EQ(std::count(m.sent.begin(), m.sent.end(), kNone), 1);
  const auto second = std::find(m.sent.begin(), m.sent.end(), kNone);
  EXPECT_EQ(m.duplicate_of[second - m.sent.begin()], 1u);
}

// Recorded by our device: the second of three equal packets is lost, and by the
// times it could be any of them.
TEST(MatchTest, HopLimitsDistinguishEqualPackets) {
  const Sightings sent = {{9, 0, 64}, {1, 10, 63}, {1, 11, 62}, {1, 12, 61}};
  const Match near =
      MatchPackets(sent, Sightings{{9, 30, 64}, {1, 40, 63}, {1, 41, 61}});
  EXPECT_EQ(near.received, (Places{0, 1, kNone, 2}));
  EXPECT_EQ(std::count(near.ambiguous.begin(), near.ambiguous.end(), true), 0);
  // The receiver is behind two routers.
  const Match far =
      MatchPackets(sent, Sightings{{9, 30, 62}, {1, 40, 61}, {1, 41, 59}});
  EXPECT_EQ(far.received, (Places{0, 1, kNone, 2}));
  EXPECT_EQ(std::count(far.ambiguous.begin(), far.ambiguous.end(), true), 0);
}

// One of the packets was reordered, and one was copied on the way.
TEST(MatchTest, HopLimitsTellWhichPacketWasOvertakenOrCopied) {
  const Match m = MatchPackets(
      Sightings{{9, 0, 64}, {1, 10, 63}, {1, 11, 62}, {1, 12, 61}},
      Sightings{
          {9, 30, 63}, {1, 40, 60}, {1, 41, 62}, {1, 42, 60}, {1, 43, 61}});
  EXPECT_EQ(m.received[1], 2u);
  EXPECT_EQ(m.received[2], 4u);
  EXPECT_TRUE(m.received[3] == 1u || m.received[3] == 3u);
  const size_t copy = m.received[3] == 1 ? 3 : 1;
  EXPECT_EQ(m.duplicate_of[copy], 3u);
}

// Hop limits that do not fit, because the route changed or a device on the way
// sets them, do not make any packet count as lost.
TEST(MatchTest, HopLimitsThatDoNotFitAreNotCompared) {
  const Sightings sent = {{8, 0, 64}, {9, 1, 63}, {1, 10, 62}, {1, 20, 61}};
  const Match changed = MatchPackets(
      sent, Sightings{{8, 30, 60}, {9, 31, 60}, {1, 40, 58}, {1, 41, 56}});
  EXPECT_EQ(changed.received, (Places{0, 1, 2, 3}));
  const Match set = MatchPackets(
      sent, Sightings{{8, 30, 7}, {9, 31, 7}, {1, 40, 7}, {1, 41, 7}});
  EXPECT_EQ(set.received, (Places{0, 1, 2, 3}));
  // Without a unique packet, the number of hops is unknown.
  const Match none = MatchPackets(Sightings{{1, 10, 62}, {1, 20, 61}},
                                  Sightings{{1, 40, 58}, {1, 41, 57}});
  EXPECT_EQ(none.received, (Places{0, 1}));
}

// Compares with the quadratic method on random losses of go-back-N traffic.
TEST(MatchTest, AsManyMatchesAsTheLongestCommonSubsequence) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    Sightings sent, received;
    for (int i = 0; i < 60; ++i) {
      const Sighting s = {1 + random() % 12, i * 10};
      sent.push_back(s);
      if (random() % 4 != 0) received.push_back({s.key, s.time + 5});
    }
    std::vector<std::vector<int>> best(sent.size() + 1,
                                       std::vector<int>(received.size() + 1));
    for (size_t i = sent.size(); i-- > 0;) {
      for (size_t j = received.size(); j-- > 0;) {
        best[i][j] = std::max(best[i + 1][j], best[i][j + 1]);
        if (sent[i].key == received[j].key &&
            sent[i].time <= received[j].time) {
          best[i][j] = std::max(best[i][j], best[i + 1][j + 1] + 1);
        }
      }
    }
    const Match m = MatchPackets(sent, received);
    const auto matched =
        m.received.size() -
        std::count(m.received.begin(), m.received.end(), kNone);
    EXPECT_EQ(static_cast<int>(matched), best[0][0]);
    for (size_t i = 0; i < sent.size(); ++i) {
      if (m.received[i] == kNone) continue;
      EXPECT_EQ(sent[i].key, received[m.received[i]].key);
      EXPECT_EQ(m.sent[m.received[i]], i);
    }
  }
}

TEST(CompareClocksTest, BoundsFromBothWays) {
  // b is 1000 ahead; the delay is 10 there and 30 back.
  const ClockBounds bounds =
      CompareClocks(Sightings{{1, 0}, {2, 5}}, Sightings{{1, 1010}, {2, 1025}},
                    Sightings{{3, 1100}}, Sightings{{3, 130}});
  EXPECT_EQ(bounds.most, 1010);
  EXPECT_EQ(bounds.least, 970);
}

TEST(CompareClocksTest, RepeatedPacketsDoNotCount) {
  const ClockBounds bounds =
      CompareClocks(Sightings{{1, 0}, {1, 500}}, Sightings{{1, 510}},
                    Sightings{}, Sightings{});
  EXPECT_EQ(bounds.most, INT64_MAX);
  EXPECT_EQ(bounds.least, INT64_MIN);
}

}  // namespace
}  // namespace trace
