// Rules that match packets. injector_*_test.cc have the others.
#include "transport/faults/injector.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <tuple>
#include <vector>

#include "transport/testing/injector_fixture.h"
#include "wire/aeth.h"

namespace transport::faults {
namespace {

TEST_F(InjectorTest, CountsThePacketsThatMatch) {
  Injector nth = Make("drop tx nth=2|4-5|9-");
  EXPECT_EQ(Hits(&nth, 10), (Numbers{2, 4, 5, 9, 10}));
  EXPECT_EQ(nth.counts()[0].matched, 10u);
  EXPECT_EQ(nth.counts()[0].fired, 5u);
  Injector every = Make("drop tx every=3");
  EXPECT_EQ(Hits(&every, 10), (Numbers{3, 6, 9}));
  Injector times = Make("drop tx every=3 times=2");
  EXPECT_EQ(Hits(&times, 20), (Numbers{3, 6}));
  Injector other = Make("drop rx");
  EXPECT_EQ(Hits(&other, 5), Numbers{});
  EXPECT_EQ(other.counts()[0].matched, 0u);
}

TEST_F(InjectorTest, OnlyTheDirectionAndTheOpcodes) {
  Injector injector = Make("drop rx op=ack nth=2");
  EXPECT_FALSE(injector.concerns(kTransmitted));
  EXPECT_TRUE(injector.concerns(kReceived));
  EXPECT_EQ(Decide(&injector, false, Operation::kAcknowledge, 1).rule, nullptr);
  EXPECT_EQ(Decide(&injector, true, Operation::kAcknowledge, 2).rule, nullptr);
  EXPECT_EQ(Decide(&injector, false, Operation::kSendOnly, 3).rule, nullptr);
  EXPECT_NE(Decide(&injector, false, Operation::kAcknowledge, 4).rule, nullptr);
}

TEST_F(InjectorTest, WithinItsTime) {
  Injector injector = Make("drop tx after=3us for=2us nth=1-");
  EXPECT_EQ(Hits(&injector, 8, kMicrosecond), (Numbers{3, 4}));
  EXPECT_EQ(injector.counts()[0].matched, 2u);
}

TEST_F(InjectorTest, RelativePsnOfEachDirectionAndKind) {
  Injector injector = Make("drop psn=+5");
  const auto hit = [&](bool transmitted, Operation operation, uint32_t psn) {
    return Decide(&injector, transmitted, operation, psn).rule != nullptr;
  };
  EXPECT_TRUE(hit(true, Operation::kSendOnly, kSendPsn + 5));
  EXPECT_TRUE(hit(false, Operation::kAcknowledge, kSendPsn + 5));
  EXPECT_TRUE(hit(false, Operation::kSendOnly, kReceivePsn + 5));
  EXPECT_TRUE(hit(true, Operation::kReadResponseOnly, kReceivePsn + 5));
  EXPECT_FALSE(hit(true, Operation::kSendOnly, kReceivePsn + 5));
  EXPECT_FALSE(hit(true, Operation::kAcknowledge, kSendPsn + 5));
  EXPECT_FALSE(hit(true, Operation::kSendOnly, 5));
  Injector absolute = Make("drop psn=5");
  EXPECT_NE(Decide(&absolute, true, Operation::kSendOnly, 5).rule, nullptr);
}

TEST_F(InjectorTest, IterationsOfEachPacket) {
  Injector first = Make("drop tx iter=1");
  const auto hit = [this](Injector* injector, uint32_t psn) {
    return Decide(injector, true, Operation::kSendMiddle, psn).rule != nullptr;
  };
  EXPECT_TRUE(hit(&first, 7));
  EXPECT_FALSE(hit(&first, 7));
  EXPECT_TRUE(hit(&first, 8));
  EXPECT_FALSE(hit(&first, 7));
  Injector third = Make("drop tx iter=3");
  EXPECT_FALSE(hit(&third, 7));
  EXPECT_FALSE(hit(&third, 7));
  EXPECT_FALSE(hit(&third, 8));
  EXPECT_TRUE(hit(&third, 7));
  EXPECT_FALSE(hit(&third, 7));
  // A connection that is made again counts anew.
  third.OnReceivePsn(kQpn, kReceivePsn);
  EXPECT_FALSE(hit(&third, 7));
}

TEST_F(InjectorTest, QueuePairsByNumberAndOrder) {
  Injector injector = Make("drop qp=@2");
  Add(&injector, 77);
  const auto hit = [&](uint32_t qpn) {
    return Decide(&injector, true, Operation::kSendOnly, 1, 0, qpn).rule !=
           nullptr;
  };
  EXPECT_FALSE(hit(kQpn));
  EXPECT_TRUE(hit(77));
  EXPECT_FALSE(hit(78));  // never created
  injector.OnDestroyed(77);
  Add(&injector, 77);  // the third
  EXPECT_FALSE(hit(77));
  Injector number = Make("drop qp=0x1234");
  EXPECT_NE(Decide(&number, true, Operation::kSendOnly, 1).rule, nullptr);
}

TEST_F(InjectorTest, PeerAndBytes) {
  Injector peer = Make("drop peer=192.0.2.7");
  EXPECT_NE(Decide(&peer, true, Operation::kSendOnly, 1).rule, nullptr);
  Injector other = Make("drop peer=192.0.2.8");
  EXPECT_EQ(Decide(&other, true, Operation::kSendOnly, 1).rule, nullptr);
  Injector longer = Make("drop bytes>64");
  EXPECT_EQ(Decide(&longer, true, Operation::kSendOnly, 1, 0, kQpn, 64).rule,
            nullptr);
  EXPECT_NE(Decide(&longer, true, Operation::kSendOnly, 2, 0, kQpn, 65).rule,
            nullptr);
}

TEST_F(InjectorTest, TheFirstRuleThatFiresDecides) {
  Injector injector = Make("drop tx nth=2; ce tx nth=2|4");
  std::vector<Action> actions;
  for (uint32_t i = 1; i <= 4; ++i) {
    const Fate fate = Decide(&injector, true, Operation::kSendOnly, i);
    if (fate.rule != nullptr) actions.push_back(fate.rule->action);
  }
  // The second rule counts the packet that the first one dropped.
  EXPECT_EQ(actions, (std::vector<Action>{Action::kDrop, Action::kMark}));
  EXPECT_EQ(injector.counts()[1].matched, 4u);
  EXPECT_EQ(injector.counts()[1].fired, 1u);
}

TEST_F(InjectorTest, CorruptionOnlyWhereThePacketHasTheField) {
  Injector rkey = Make("corrupt rkey nth=1");
  EXPECT_EQ(Decide(&rkey, true, Operation::kWriteMiddle, 1).rule, nullptr);
  const Fate fate = Decide(&rkey, true, Operation::kWriteFirst, 2);
  ASSERT_NE(fate.rule, nullptr);
  EXPECT_EQ(fate.flipped.offset, wire::kBthSize + 11);
  EXPECT_EQ(fate.flipped.mask, 1);
  Injector byte = Make("corrupt byte=1000");
  EXPECT_EQ(Decide(&byte, true, Operation::kSendOnly, 1).rule, nullptr);
  Injector payload = Make("corrupt payload");
  EXPECT_EQ(Decide(&payload, false, Operation::kAcknowledge, 1).rule, nullptr);
  EXPECT_EQ(Decide(&payload, true, Operation::kSendOnly, 1).flipped.offset,
            wire::kBthSize);
  Injector icrc = Make("corrupt icrc");
  EXPECT_EQ(Decide(&icrc, true, Operation::kSendOnly, 1).flipped.offset,
            wire::kBthSize + 64);
}

TEST_F(InjectorTest, NoAckUntilTheRequestComesAgain) {
  Injector injector = Make("no-ack op=data nth=2");
  EXPECT_TRUE(injector.concerns(kTransmitted));
  const auto arrives = [&](uint32_t psn) {
    return Decide(&injector, false, Operation::kWriteMiddle, psn).rule !=
           nullptr;
  };
  EXPECT_FALSE(arrives(500));
  EXPECT_FALSE(AckIsDropped(&injector, 500));
  EXPECT_TRUE(arrives(501));
  EXPECT_FALSE(arrives(502));
  EXPECT_FALSE(AckIsDropped(&injector, 500));
  EXPECT_TRUE(AckIsDropped(&injector, 501));
  EXPECT_TRUE(AckIsDropped(&injector, 502));
  // A NAK acknowledges what is before it.
  const uint8_t nak = wire::MakeNakSyndrome(wire::NakCode::kPsnSequence);
  EXPECT_FALSE(AckIsDropped(&injector, 501, nak));
  EXPECT_TRUE(AckIsDropped(&injector, 502, nak));
  // So does the response of a later READ.
  EXPECT_NE(Decide(&injector, true, Operation::kReadResponseOnly, 503).rule,
            nullptr);
  EXPECT_EQ(injector.counts()[0].fired, 1u);
  // Other requests of ours, and their answers.
  EXPECT_EQ(Decide(&injector, true, Operation::kSendOnly, 600).rule, nullptr);
  EXPECT_FALSE(arrives(503));
  EXPECT_TRUE(AckIsDropped(&injector, 503));
  EXPECT_FALSE(arrives(501));
  EXPECT_FALSE(AckIsDropped(&injector, 503));
  EXPECT_EQ(injector.counts()[0].fired, 1u);
}

TEST_F(InjectorTest, NoAckEndsWhenAnEarlierRequestComesAgain) {
  Injector injector = Make("no-ack times=1 nth=2-");
  const auto arrives = [&](uint32_t psn) {
    return Decide(&injector, false, Operation::kSendOnly, psn).rule != nullptr;
  };
  EXPECT_FALSE(arrives(500));
  EXPECT_TRUE(arrives(501));
  EXPECT_TRUE(AckIsDropped(&injector, 501));
  EXPECT_FALSE(arrives(500));
  EXPECT_FALSE(AckIsDropped(&injector, 501));
}

TEST_F(InjectorTest, RefusalsAreOfTheRequestsThatMatch) {
  Injector injector = Make("rnr op=data nth=2|4; nak REM_OP_ERR nth=7");
  EXPECT_TRUE(injector.concerns(kRefusals));
  EXPECT_FALSE(Make("drop").concerns(kRefusals));
  for (uint32_t psn = 500; psn < 506; ++psn) {
    Decide(&injector, false, Operation::kSendOnly, psn);
  }
  EXPECT_EQ(injector.TakeRefusal(kQpn, {}, 500), nullptr);
  ASSERT_NE(injector.TakeRefusal(kQpn, {}, 501), nullptr);
  // The refusal is taken once.
  EXPECT_EQ(injector.TakeRefusal(kQpn, {}, 501), nullptr);
  EXPECT_EQ(injector.TakeRefusal(99, {}, 503), nullptr);
  EXPECT_EQ(injector.TakeRefusal(kQpn, {}, 503)->action, Action::kRnr);
  EXPECT_EQ(injector.TakeRefusal(kQpn, {}, 505), nullptr);
  Decide(&injector, false, Operation::kSendOnly, 506);
  EXPECT_EQ(injector.TakeRefusal(kQpn, {}, 506)->action, Action::kNak);
  // What has been executed is not refused later.
  Injector late = Make("rnr");
  Decide(&late, false, Operation::kSendOnly, 500);
  EXPECT_EQ(late.TakeRefusal(kQpn, {}, 501), nullptr);
  EXPECT_EQ(late.TakeRefusal(kQpn, {}, 500), nullptr);
  // A connection that is made again has none.
  Decide(&late, false, Operation::kSendOnly, 502);
  late.OnReceivePsn(kQpn, 502);
  EXPECT_EQ(late.TakeRefusal(kQpn, {}, 502), nullptr);
}

// The fates of `packets` by chance, as (queue pair, PSN, iteration).
using Key = std::tuple<uint32_t, uint32_t, int>;

TEST_F(InjectorTest, ChanceDependsOnThePacketAlone) {
  constexpr uint32_t kOther = 99;
  constexpr uint32_t kPackets = 2000;
  const auto run = [&](uint64_t seed, bool reversed, bool interleaved) {
    Injector injector = Make("drop tx p=0.1", seed);
    Add(&injector, kOther);
    std::set<Key> hit;
    for (uint32_t i = 0; i < kPackets; ++i) {
      const uint32_t psn = kSendPsn + (reversed ? kPackets - 1 - i : i);
      for (int iteration = 1; iteration <= 2; ++iteration) {
        if (Decide(&injector, true, Operation::kSendMiddle, psn, Time{i} * 1000)
                .rule != nullptr) {
          hit.emplace(kQpn, psn, iteration);
        }
      }
      if (!interleaved) continue;
      for (int iteration = 1; iteration <= 2; ++iteration) {
        Decide(&injector, true, Operation::kSendMiddle, psn, 0, kOther);
      }
    }
    return hit;
  };
  const std::set<Key> hits = run(1, false, false);
  // 10 % of 4,000; four standard deviations.
  EXPECT_NEAR(static_cast<double>(hits.size()), 400, 76);
  EXPECT_EQ(run(1, true, false), hits);
  EXPECT_EQ(run(1, false, true), hits);
  EXPECT_NE(run(2, false, false), hits);
}

TEST_F(InjectorTest, JitterIsWithinItsBoundsAndFixed) {
  Injector one = Make("delay 2ms~1ms");
  Injector two = Make("delay 2ms~1ms");
  std::set<Time> delays;
  for (uint32_t psn = 0; psn < 100; ++psn) {
    const Fate fate = Decide(&one, true, Operation::kSendMiddle, psn);
    EXPECT_GE(fate.delay, 2 * kMillisecond);
    EXPECT_LT(fate.delay, 3 * kMillisecond);
    EXPECT_EQ(Decide(&two, true, Operation::kSendMiddle, psn).delay,
              fate.delay);
    delays.insert(fate.delay);
  }
  EXPECT_GT(delays.size(), 90u);
}

}  // namespace
}  // namespace transport::faults
