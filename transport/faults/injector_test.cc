#include "transport/faults/injector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "transport/faults/rule_parser.h"
#include "wire/aeth.h"
#include "wire/dc.h"
#include "wire/packet.h"

namespace transport::faults {
namespace {

using wire::MakeOpcode;
using wire::Operation;
using wire::Transport;

constexpr uint32_t kQpn = 0x1234;
constexpr uint32_t kSendPsn = 0xfffffe;  // wraps
constexpr uint32_t kReceivePsn = 500;

class InjectorTest : public testing::Test {
 protected:
  Injector Make(const std::string& text, uint64_t seed = 1) {
    std::vector<Rule> rules;
    const auto error = ParseRules(text, &rules);
    EXPECT_FALSE(error.has_value()) << error->ToString();
    Injector injector(std::move(rules), seed, 0);
    Add(&injector, kQpn);
    return injector;
  }
  static void Add(Injector* injector, uint32_t qpn) {
    injector->OnCreated(qpn);
    injector->OnReceivePsn(qpn, kReceivePsn);
    injector->OnSendPsn(qpn, kSendPsn);
  }

  // The fate of a packet with 64 bytes of payload, if it has one.
  Fate Decide(Injector* injector, bool transmitted, Operation operation,
              uint32_t psn, Time now = 0, uint32_t qpn = kQpn,
              size_t payload = 64) {
    wire::Headers headers;
    headers.bth.opcode = MakeOpcode(Transport::kRc, operation);
    headers.bth.psn = psn & wire::kQpnMask;
    const wire::OpcodeInfo& info = wire::GetOpcodeInfo(headers.bth.opcode);
    if (!info.carries_payload) payload = 0;
    headers.bth.pad_count = wire::PadCount(payload);
    bytes_.assign(
        info.header_length + payload + headers.bth.pad_count + wire::kIcrcSize,
        0);
    wire::EmitHeaders(headers, bytes_.data());
    EXPECT_EQ(wire::PacketView::Parse(bytes_, &packet_), wire::ParseError::kOk);
    return injector->Decide({.transmitted = transmitted,
                             .qpn = qpn,
                             .packet = &packet_,
                             .peer = *wire::IpAddress::Parse("192.0.2.7")},
                            now);
  }
  // An acknowledgement of the peer's request `psn`. Returns whether it is
  // dropped.
  bool AckIsDropped(Injector* injector, uint32_t psn,
                    uint8_t syndrome = wire::MakeAckSyndrome(0)) {
    wire::Headers headers;
    headers.bth.opcode = MakeOpcode(Transport::kRc, Operation::kAcknowledge);
    headers.bth.psn = psn;
    headers.aeth.syndrome = syndrome;
    bytes_.assign(wire::kAcknowledgeSize, 0);
    wire::EmitHeaders(headers, bytes_.data());
    EXPECT_EQ(wire::PacketView::Parse(bytes_, &packet_), wire::ParseError::kOk);
    const Fate fate = injector->Decide({.transmitted = true,
                                        .qpn = kQpn,
                                        .packet = &packet_,
                                        .peer = wire::IpAddress()},
                                       0);
    EXPECT_EQ(fate.is_consequence, fate.rule != nullptr);
    return fate.rule != nullptr;
  }
  // The numbers, from 1, of the packets of `count` that are hit. Each has a PSN
  // of its own.
  std::vector<int> Hits(Injector* injector, int count, Time step = 0) {
    std::vector<int> hits;
    for (int i = 1; i <= count; ++i) {
      if (Decide(injector, true, Operation::kWriteMiddle,
                 kSendPsn + static_cast<uint32_t>(i), step * i)
              .rule != nullptr) {
        hits.push_back(i);
      }
    }
    return hits;
  }

  std::vector<uint8_t> bytes_;
  wire::PacketView packet_;
};

using Numbers = std::vector<int>;

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
  EXPECT_EQ(fate.place.offset, wire::kBthSize + 11);
  EXPECT_EQ(fate.place.mask, 1);
  Injector byte = Make("corrupt byte=1000");
  EXPECT_EQ(Decide(&byte, true, Operation::kSendOnly, 1).rule, nullptr);
  Injector payload = Make("corrupt payload");
  EXPECT_EQ(Decide(&payload, false, Operation::kAcknowledge, 1).rule, nullptr);
  EXPECT_EQ(Decide(&payload, true, Operation::kSendOnly, 1).place.offset,
            wire::kBthSize);
  Injector icrc = Make("corrupt icrc");
  EXPECT_EQ(Decide(&icrc, true, Operation::kSendOnly, 1).place.offset,
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
  // Once.
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

TEST_F(InjectorTest, CallsThatFail) {
  Injector injector = Make(
      "fail ibv_reg_mr ENOMEM nth=2; drop nth=1; fail ibv_create_qp EAGAIN "
      "after=5s for=1s");
  EXPECT_TRUE(injector.concerns(kProgramCalls));
  EXPECT_FALSE(Make("drop").concerns(kProgramCalls));
  EXPECT_EQ(injector.DecideCall("ibv_reg_mr", std::nullopt, 0).rule, nullptr);
  EXPECT_EQ(injector.DecideCall("ibv_create_cq", std::nullopt, 0).rule,
            nullptr);
  const Rule* const rule =
      injector.DecideCall("ibv_reg_mr", std::nullopt, 0).rule;
  ASSERT_NE(rule, nullptr);
  EXPECT_EQ(rule->number, 1u);
  EXPECT_EQ(injector.DecideCall("ibv_reg_mr", std::nullopt, 0).rule, nullptr);
  EXPECT_EQ(injector.counts()[0].matched, 3u);
  EXPECT_EQ(injector.counts()[0].fired, 1u);
  EXPECT_EQ(
      injector.DecideCall("ibv_create_qp", std::nullopt, 4 * kSecond).rule,
      nullptr);
  EXPECT_NE(
      injector.DecideCall("ibv_create_qp", std::nullopt, 5 * kSecond).rule,
      nullptr);
  EXPECT_EQ(
      injector.DecideCall("ibv_create_qp", std::nullopt, 6 * kSecond).rule,
      nullptr);
  // Packets are for the other rule.
  EXPECT_EQ(Decide(&injector, true, Operation::kSendOnly, 1).rule->number, 2u);
  // The same calls fail in each run.
  const auto run = [this](uint64_t seed) {
    Injector chance = Make("fail ibv_reg_mr ENOMEM p=20%", seed);
    std::vector<bool> failed;
    for (int i = 0; i < 500; ++i) {
      failed.push_back(chance.DecideCall("ibv_reg_mr", std::nullopt, 0).rule !=
                       nullptr);
    }
    return failed;
  };
  const std::vector<bool> failed = run(1);
  // Four standard deviations.
  EXPECT_NEAR(static_cast<double>(std::ranges::count(failed, true)), 100, 36);
  EXPECT_EQ(run(1), failed);
  EXPECT_NE(run(2), failed);
}

TEST_F(InjectorTest, Completions) {
  Injector injector = Make(
      "complete GENERAL_ERR tx qp=@1 nth=2; late-completion rx; drop nth=1");
  EXPECT_TRUE(injector.concerns(kCompletions));
  EXPECT_FALSE(Make("drop").concerns(kCompletions));
  EXPECT_FALSE(Make("complete GENERAL_ERR").concerns(kReceived));
  const auto hit = [&](bool sent, uint32_t qpn, bool may_be_late) {
    const Rule* const rule = injector.DecideCompletion(
        {.sent = sent, .qpn = qpn, .bytes = 0, .may_be_late = may_be_late}, 0);
    return rule == nullptr ? 0 : rule->number;
  };
  EXPECT_EQ(hit(true, kQpn, true), 0u);
  EXPECT_EQ(hit(true, 99, true), 0u);
  EXPECT_EQ(hit(true, kQpn, true), 1u);
  EXPECT_EQ(hit(true, kQpn, true), 0u);
  EXPECT_EQ(hit(false, kQpn, false), 0u);
  EXPECT_EQ(hit(false, kQpn, true), 2u);
  EXPECT_EQ(injector.counts()[1].matched, 1u);
  // Packets are for the third rule.
  EXPECT_EQ(Decide(&injector, true, Operation::kSendOnly, 1).rule->number, 3u);
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

std::vector<Rule> Parsed(const std::string& text) {
  std::vector<Rule> rules;
  EXPECT_EQ(ParseRules(text, &rules), std::nullopt);
  return rules;
}

TEST_F(InjectorTest, RulesComeAndGo) {
  Injector injector = Make("drop tx nth=2");
  EXPECT_FALSE(injector.concerns(kReceived));
  EXPECT_EQ(Hits(&injector, 3), Numbers{2});
  ASSERT_TRUE(injector.Add(Parsed("ce nth=1; drop nth=2|3"), 10));
  EXPECT_TRUE(injector.concerns(kReceived));
  const Fate marked =
      Decide(&injector, true, Operation::kSendOnly, kSendPsn, 10);
  ASSERT_NE(marked.rule, nullptr);
  EXPECT_EQ(marked.rule->number, 2u);
  EXPECT_TRUE(injector.Remove(2));
  EXPECT_FALSE(injector.Remove(2));
  EXPECT_FALSE(injector.Remove(0));
  EXPECT_FALSE(injector.Remove(4));
  EXPECT_EQ(Hits(&injector, 3, 10), (Numbers{1, 2}));
  // It keeps its number and its counts.
  EXPECT_EQ(marked.rule->text, "ce nth=1");
  EXPECT_EQ(injector.counts()[1].fired, 1u);
  EXPECT_EQ(injector.counts()[2].fired, 2u);
  ASSERT_TRUE(injector.Add(Parsed("duplicate rx"), 10));
  EXPECT_EQ(injector.rules().back().number, 4u);
  EXPECT_TRUE(injector.Remove(1));
  EXPECT_TRUE(injector.Remove(3));
  EXPECT_FALSE(injector.concerns(kTransmitted));
}

TEST_F(InjectorTest, TimesOfARuleCountFromItsAddition) {
  Injector injector = Make("drop rx maybe");
  ASSERT_TRUE(injector.Add(Parsed("drop tx after=2ns for=2ns"), 100));
  const auto hit = [&](Time now) {
    return Decide(&injector, true, Operation::kSendOnly, kSendPsn, now).rule !=
           nullptr;
  };
  EXPECT_FALSE(hit(50));
  EXPECT_FALSE(hit(101));
  EXPECT_TRUE(hit(102));
  EXPECT_FALSE(hit(104));
}

// The requester would repeat the request until its timeouts end.
TEST_F(InjectorTest, ARemovedRuleDoesNothingMore) {
  Injector injector = Make("no-ack nth=1; rnr nth=2");
  ASSERT_NE(Decide(&injector, false, Operation::kSendOnly, kReceivePsn).rule,
            nullptr);
  EXPECT_TRUE(AckIsDropped(&injector, kReceivePsn));
  ASSERT_NE(
      Decide(&injector, false, Operation::kSendOnly, kReceivePsn + 1).rule,
      nullptr);
  EXPECT_TRUE(injector.Remove(1));
  EXPECT_TRUE(injector.Remove(2));
  EXPECT_FALSE(AckIsDropped(&injector, kReceivePsn));
  EXPECT_EQ(injector.TakeRefusal(kQpn, {}, kReceivePsn + 1), nullptr);
  EXPECT_FALSE(injector.concerns(kRefusals));
}

// Counts from before such a gap were mixed with later ones.
TEST_F(InjectorTest, IterationsCountAnewAfterATimeWithoutRulesThatNeedThem) {
  Injector injector = Make("drop tx iter=2; ce rx; ce tx");
  const auto hit = [&](bool transmitted, uint32_t rule) {
    const Fate fate = Decide(&injector, transmitted, Operation::kSendOnly,
                             transmitted ? kSendPsn : kReceivePsn);
    return fate.rule != nullptr && fate.rule->number == rule;
  };
  const auto add = [&](const std::string& text) {
    ASSERT_TRUE(injector.Add(Parsed(text), 0));
  };
  EXPECT_FALSE(hit(true, 1));
  injector.Remove(1);
  EXPECT_FALSE(hit(true, 4));  // not counted
  injector.Remove(3);
  add("drop tx iter=1");
  EXPECT_TRUE(hit(true, 4));
  // The other direction goes on while one rule of it stays.
  EXPECT_FALSE(hit(false, 5));
  add("drop rx iter=1");
  EXPECT_FALSE(hit(false, 5));
  // Without one, packets of that direction do not come here.
  injector.Remove(2);
  injector.Remove(5);
  add("drop rx iter=1");
  EXPECT_TRUE(hit(false, 6));
}

TEST_F(InjectorTest, RulesAreLimited) {
  Injector injector = Make("drop rx maybe");
  std::string text;
  for (int i = 0; i < 256; ++i) text += "drop rx psn=1;";
  const std::vector<Rule> many = Parsed(text);
  size_t rules = 1;
  while (injector.Add(many, 0)) {
    rules += many.size();
    for (uint32_t i = 2; i <= rules; ++i) injector.Remove(i);
  }
  EXPECT_EQ(injector.rules().size(), rules);
  EXPECT_GT(rules + many.size(), Injector::kMostRules);
}

// --- Messages of the connection manager.

TEST_F(InjectorTest, MessagesOfTheCmByAttributeAndDirection) {
  Injector injector =
      Make("drop rx op=CM_REQ nth=2; delay 2ms~2ms op=CM_REP peer=192.0.2.7");
  EXPECT_FALSE(injector.concerns(kReceived));
  const auto decide = [&](bool sent, uint16_t attribute,
                          const char* peer = "192.0.2.7") {
    return injector.DecideMad({.transmitted = sent,
                               .attribute = attribute,
                               .peer = *wire::IpAddress::Parse(peer)},
                              0);
  };
  EXPECT_EQ(decide(false, 0x10).rule, nullptr);
  EXPECT_EQ(decide(true, 0x10).rule, nullptr);
  const NumberedFate lost = decide(false, 0x10);
  ASSERT_NE(lost.rule, nullptr);
  EXPECT_EQ(lost.number, 2u);
  EXPECT_EQ(decide(false, 0x10).rule, nullptr);
  EXPECT_EQ(decide(true, 0x13, "192.0.2.8").rule, nullptr);
  const NumberedFate late = decide(true, 0x13);
  EXPECT_EQ(late.number, 2u);
  EXPECT_GE(late.delay, 2 * kMillisecond);
  EXPECT_LE(late.delay, 4 * kMillisecond);
  EXPECT_EQ(decide(false, 0x99).rule, nullptr);
  // Its opcode is not one of packets.
  EXPECT_EQ(Decide(&injector, false, Operation::kSendOnly, kReceivePsn).rule,
            nullptr);
}

// --- DC targets.

class DcTargetTest : public InjectorTest {
 protected:
  // A request or response of the target kQpn with initiator `initiator` of
  // 192.0.2.`host`, whose connection is 0x800001.
  Fate Pass(Injector* injector, bool transmitted, Operation operation,
            uint32_t psn, uint32_t initiator, int host) {
    wire::DcEth dceth;
    dceth.from_initiator = !transmitted;
    dceth.src_qpn = transmitted ? 0x800001 : initiator;
    dceth.dct = kQpn;
    dceth.initiator_session = session_;
    wire::Headers headers;
    headers.bth.opcode = MakeOpcode(Transport::kDc, operation);
    headers.bth.psn = psn;
    headers.bth.dest_qpn = transmitted ? initiator : 0x800001;
    headers.aeth.syndrome = wire::MakeAckSyndrome(0);
    bytes_.assign(
        wire::GetOpcodeInfo(headers.bth.opcode).header_length + wire::kIcrcSize,
        0);
    if (is_answer_) {
      bytes_.resize(wire::kDcAnswerPacketSize);
      wire::EmitDcAnswer(headers.bth, dceth, bytes_.data());
    } else if (operation == Operation::kConnect) {
      wire::EmitDcConnect(headers.bth, dceth, {}, bytes_.data());
    } else {
      wire::EmitDcHeaders(headers, dceth, bytes_.data());
    }
    EXPECT_EQ(wire::PacketView::Parse(bytes_, &packet_), wire::ParseError::kOk);
    return injector->Decide(
        {.transmitted = transmitted,
         .qpn = kQpn,
         .packet = &packet_,
         .peer = *wire::IpAddress::Parse("192.0.2." + std::to_string(host))},
        0);
  }
  // The same with initiator 0x11 of host 1. Whether a rule hits it.
  bool Connects(Injector* injector, uint32_t psn, uint32_t session) {
    session_ = session;
    return Pass(injector, false, Operation::kConnect, psn, 0x11, 1).rule !=
           nullptr;
  }
  bool Sends(Injector* injector, uint32_t psn) {
    return Pass(injector, false, Operation::kSendOnly, psn, 0x11, 1).rule !=
           nullptr;
  }
  bool IsAnswered(Injector* injector, uint32_t psn, bool to_connect = false) {
    is_answer_ = to_connect;
    const Fate fate =
        Pass(injector, true, Operation::kAcknowledge, psn, 0x11, 1);
    is_answer_ = false;
    return fate.rule == nullptr;
  }
  static RequesterFacts Requester(uint32_t initiator, int host) {
    return {
        .address = *wire::IpAddress::Parse("192.0.2." + std::to_string(host)),
        .qpn = initiator};
  }

  uint32_t session_ = 0;  // the initiator's
  bool is_answer_ = false;
};

TEST_F(DcTargetTest, RefusalsAreOfTheInitiatorsRequest) {
  Injector injector = Make("rnr nth=1|3");
  Pass(&injector, false, Operation::kSendOnly, 100, 0x11, 1);
  Pass(&injector, false, Operation::kSendOnly, 100, 0x12, 1);
  Pass(&injector, false, Operation::kSendOnly, 100, 0x11, 2);
  EXPECT_EQ(injector.TakeRefusal(kQpn, Requester(0x12, 1), 100), nullptr);
  EXPECT_EQ(injector.TakeRefusal(kQpn, {}, 100), nullptr);
  EXPECT_NE(injector.TakeRefusal(kQpn, Requester(0x11, 2), 100), nullptr);
  EXPECT_NE(injector.TakeRefusal(kQpn, Requester(0x11, 1), 100), nullptr);
  EXPECT_EQ(injector.TakeRefusal(kQpn, Requester(0x11, 1), 100), nullptr);
}

TEST_F(DcTargetTest, NoAckIsOfTheInitiatorsRequest) {
  Injector injector = Make("no-ack nth=1");
  const auto is_dropped = [&](uint32_t psn, uint32_t initiator) {
    return Pass(&injector, true, Operation::kAcknowledge, psn, initiator, 1)
        .is_consequence;
  };
  EXPECT_NE(Pass(&injector, false, Operation::kSendOnly, 100, 0x11, 1).rule,
            nullptr);
  EXPECT_EQ(Pass(&injector, false, Operation::kSendOnly, 100, 0x12, 1).rule,
            nullptr);
  EXPECT_FALSE(is_dropped(100, 0x12));
  EXPECT_TRUE(is_dropped(100, 0x11));
  EXPECT_FALSE(is_dropped(99, 0x11));
  // Another initiator's request does not end it.
  Pass(&injector, false, Operation::kSendOnly, 99, 0x12, 1);
  EXPECT_TRUE(is_dropped(101, 0x11));
  Pass(&injector, false, Operation::kSendOnly, 100, 0x11, 1);
  EXPECT_FALSE(is_dropped(101, 0x11));
}

TEST_F(DcTargetTest, IterationsAndMessagesAreOfEachInitiator) {
  Injector iterations = Make("drop rx iter=2");
  for (const uint32_t initiator : {0x11, 0x12}) {
    EXPECT_EQ(
        Pass(&iterations, false, Operation::kSendOnly, 7, initiator, 1).rule,
        nullptr);
  }
  EXPECT_NE(Pass(&iterations, false, Operation::kSendOnly, 7, 0x11, 1).rule,
            nullptr);
  Injector messages = Make("drop rx msg=2");
  const auto is_hit = [&](uint32_t psn, uint32_t initiator) {
    return Pass(&messages, false, Operation::kSendOnly, psn, initiator, 1)
               .rule != nullptr;
  };
  EXPECT_FALSE(is_hit(500, 0x11));
  EXPECT_FALSE(is_hit(20, 0x12));
  EXPECT_TRUE(is_hit(21, 0x12));
  EXPECT_TRUE(is_hit(501, 0x11));
}

TEST_F(DcTargetTest, ForgetsTheInitiatorThatWasUsedLeastRecently) {
  Injector injector = Make("drop rx iter=2");
  const auto is_hit = [&](uint32_t initiator) {
    return Pass(&injector, false, Operation::kSendOnly, 7, initiator, 1).rule !=
           nullptr;
  };
  constexpr uint32_t kMany = 2048;
  for (uint32_t i = 1; i <= kMany; ++i) EXPECT_FALSE(is_hit(i));
  EXPECT_TRUE(is_hit(1));
  EXPECT_FALSE(is_hit(kMany + 1));
  EXPECT_FALSE(is_hit(2));  // forgotten
  EXPECT_TRUE(is_hit(kMany));
}

// An initiator that connects again, or another one with its number and address.
TEST_F(DcTargetTest, IterationsBeginAnewWithAConnect) {
  Injector injector = Make("drop rx iter=2");
  EXPECT_FALSE(Connects(&injector, 7, 1));
  EXPECT_TRUE(Connects(&injector, 7, 1));  // the same one again
  EXPECT_FALSE(Sends(&injector, 8));
  EXPECT_FALSE(Connects(&injector, 7, 2));
  EXPECT_FALSE(Sends(&injector, 8));
  EXPECT_TRUE(Sends(&injector, 8));
}

TEST_F(DcTargetTest, PsnsCountFromTheConnect) {
  Injector injector = Make("drop psn=+1");
  for (const uint32_t psn : {100u, 0xffffffu, 40u}) {
    EXPECT_FALSE(Connects(&injector, psn, psn));
    EXPECT_TRUE(IsAnswered(&injector, psn, true));
    const uint32_t first = (psn + 1) & wire::kQpnMask;
    EXPECT_TRUE(Sends(&injector, first));
    EXPECT_FALSE(IsAnswered(&injector, first));
    EXPECT_FALSE(Sends(&injector, first + 1));
  }
  // One of an earlier session is late.
  session_ = 100;
  EXPECT_FALSE(Sends(&injector, 102));
  session_ = 40;
  EXPECT_TRUE(Sends(&injector, 41));
}

// With rules for packets that are sent, CONNECTs are not seen.
TEST_F(DcTargetTest, AnAnswerTellsOfTheConnect) {
  Injector injector = Make("drop tx psn=+1");
  for (const uint32_t psn : {100, 40}) {
    session_ = psn;
    EXPECT_TRUE(IsAnswered(&injector, psn, true));
    EXPECT_FALSE(IsAnswered(&injector, psn + 1));
    EXPECT_TRUE(IsAnswered(&injector, psn + 2));
  }
}

TEST_F(DcTargetTest, MessagesCountFromTheConnect) {
  Injector injector = Make("drop rx msg=2");
  for (const uint32_t psn : {100, 40}) {
    EXPECT_FALSE(Connects(&injector, psn, psn));
    // The first one is lost before.
    EXPECT_FALSE(Sends(&injector, psn + 2));
    EXPECT_FALSE(Sends(&injector, psn + 1));
    EXPECT_TRUE(Sends(&injector, psn + 2));
    EXPECT_FALSE(Sends(&injector, psn + 3));
  }
}

TEST_F(DcTargetTest, NoAckEndsWithTheConnection) {
  Injector injector = Make("no-ack nth=1");
  EXPECT_FALSE(Connects(&injector, 100, 1));
  EXPECT_TRUE(Sends(&injector, 101));
  EXPECT_FALSE(IsAnswered(&injector, 101));
  EXPECT_FALSE(Connects(&injector, 500, 2));
  EXPECT_TRUE(IsAnswered(&injector, 500, true));
  EXPECT_FALSE(Sends(&injector, 501));
  EXPECT_TRUE(IsAnswered(&injector, 501));
}

TEST_F(DcTargetTest, RefusalsEndWithTheConnection) {
  Injector injector = Make("rnr nth=1");
  EXPECT_FALSE(Connects(&injector, 100, 1));
  EXPECT_TRUE(Sends(&injector, 101));
  EXPECT_FALSE(Connects(&injector, 100, 2));
  EXPECT_FALSE(Sends(&injector, 101));
  EXPECT_EQ(injector.TakeRefusal(kQpn, Requester(0x11, 1), 101), nullptr);
}

// The CONNECT of the connection has passed before there were rules, or between
// two of them.
TEST_F(DcTargetTest, AConnectThatWasNotSeen) {
  Injector injector = Make("drop rx psn=+1");
  session_ = 3;
  EXPECT_FALSE(Sends(&injector, 9));
  EXPECT_TRUE(Sends(&injector, 10));
  ASSERT_TRUE(injector.Remove(1));
  std::vector<Rule> rules;
  ASSERT_FALSE(ParseRules("drop rx psn=+1", &rules).has_value());
  ASSERT_TRUE(injector.Add(rules, 0));
  EXPECT_TRUE(Sends(&injector, 10));  // of the same connection
  ASSERT_TRUE(injector.Remove(2));
  ASSERT_TRUE(injector.Add(std::move(rules), 0));
  session_ = 4;
  EXPECT_FALSE(Sends(&injector, 500));
  EXPECT_TRUE(Sends(&injector, 501));
}

// A CONNECT of the session before is late: the present one goes on.
TEST_F(DcTargetTest, ALateConnectChangesNothing) {
  Injector injector = Make("drop psn=+1");
  EXPECT_FALSE(Connects(&injector, 7, 1));
  EXPECT_FALSE(Connects(&injector, 100, 2));
  EXPECT_FALSE(Connects(&injector, 7, 1));
  session_ = 2;
  EXPECT_TRUE(Sends(&injector, 101));
}

TEST_F(DcTargetTest, ChanceDiffersBetweenInitiators) {
  Injector injector = Make("drop rx p=50%");
  int hits = 0;
  session_ = 1;
  for (uint32_t initiator = 1; initiator <= 64; ++initiator) {
    (void)Pass(&injector, false, Operation::kConnect, 100, initiator, 1);
    hits +=
        Pass(&injector, false, Operation::kSendOnly, 101, initiator, 1).rule !=
        nullptr;
  }
  EXPECT_GT(hits, 16);
  EXPECT_LT(hits, 48);
}

// What chance decides of a connection is not what it has decided of the others,
// but the same with each run.
TEST_F(DcTargetTest, ChanceDiffersBetweenConnections) {
  const auto hits = [this](uint32_t first_psn) {
    Injector injector = Make("drop rx p=50%");
    std::vector<bool> hits;
    for (uint32_t session = 1; session <= 64; ++session) {
      const uint32_t psn = (first_psn + 10 * session) & wire::kQpnMask;
      Connects(&injector, psn, session);
      hits.push_back(Sends(&injector, psn + 1));
    }
    return hits;
  };
  const std::vector<bool> first = hits(0);
  EXPECT_GT(std::ranges::count(first, true), 16);
  EXPECT_GT(std::ranges::count(first, false), 16);
  EXPECT_EQ(first, hits(7000));
}

// --- Messages and work requests.

TEST_F(InjectorTest, MessagesAreCountedInTheirOrder) {
  Injector injector = Make("drop tx msg=2; ce rx msg=2");
  const auto sends = [&](Operation operation, uint32_t psn) {
    const Fate fate = Decide(&injector, true, operation, psn);
    return fate.rule != nullptr;
  };
  // Decide is called behind OnSent.
  const auto posted = [&](Operation operation, uint32_t psn) {
    (void)Decide(&injector, false, Operation::kAcknowledge, 0);
    wire::Headers headers;
    headers.bth.opcode = MakeOpcode(Transport::kRc, operation);
    headers.bth.psn = psn & wire::kQpnMask;
    std::vector<uint8_t> bytes(
        wire::GetOpcodeInfo(headers.bth.opcode).header_length +
        wire::kIcrcSize);
    wire::EmitHeaders(headers, bytes.data());
    wire::PacketView packet;
    ASSERT_EQ(wire::PacketView::Parse(bytes, &packet), wire::ParseError::kOk);
    injector.OnSent(kQpn, packet);
  };
  posted(Operation::kSendOnly, kSendPsn);
  posted(Operation::kWriteFirst, kSendPsn + 1);
  posted(Operation::kWriteMiddle, kSendPsn + 2);
  EXPECT_FALSE(sends(Operation::kSendOnly, kSendPsn));
  EXPECT_TRUE(sends(Operation::kWriteFirst, kSendPsn + 1));
  EXPECT_TRUE(sends(Operation::kWriteMiddle, kSendPsn + 2));
  // Sent again: the same message.
  posted(Operation::kWriteFirst, kSendPsn + 1);
  EXPECT_TRUE(sends(Operation::kWriteFirst, kSendPsn + 1));
  posted(Operation::kWriteLast, kSendPsn + 3);
  posted(Operation::kSendOnly, kSendPsn + 4);
  EXPECT_TRUE(sends(Operation::kWriteLast, kSendPsn + 3));
  EXPECT_FALSE(sends(Operation::kSendOnly, kSendPsn + 4));
  // The answer to the second message of the process, which arrives.
  EXPECT_NE(
      Decide(&injector, false, Operation::kReadResponseOnly, kSendPsn + 2).rule,
      nullptr);
  // Messages of the peer.
  EXPECT_EQ(Decide(&injector, false, Operation::kSendOnly, kReceivePsn).rule,
            nullptr);
  EXPECT_NE(
      Decide(&injector, false, Operation::kSendOnly, kReceivePsn + 1).rule,
      nullptr);
  EXPECT_EQ(
      Decide(&injector, false, Operation::kSendOnly, kReceivePsn + 2).rule,
      nullptr);
  EXPECT_EQ(Decide(&injector, false, Operation::kSendOnly, kReceivePsn).rule,
            nullptr);
}

TEST_F(InjectorTest, WorkRequestsAreFoundByTheirMessages) {
  Injector injector = Make("drop tx wr_id=7; ce rx wr_id=0x8");
  for (const uint64_t wr_id : {6, 7, 8, 9}) {
    injector.OnPosted(kQpn, {.wr_id = wr_id});
  }
  injector.OnPostRefused(kQpn, 1);
  injector.OnPosted(kQpn, {.wr_id = 7});  // again
  const auto is_hit = [&](uint32_t psn) {
    (void)Decide(&injector, true, Operation::kSendOnly, psn);
    injector.OnSent(kQpn, packet_);
    return Decide(&injector, true, Operation::kSendOnly, psn).rule != nullptr;
  };
  EXPECT_FALSE(is_hit(kSendPsn));
  EXPECT_TRUE(is_hit(kSendPsn + 1));
  EXPECT_FALSE(is_hit(kSendPsn + 2));
  EXPECT_TRUE(is_hit(kSendPsn + 3));
  EXPECT_TRUE(is_hit(kSendPsn + 1));
  EXPECT_NE(
      Decide(&injector, false, Operation::kReadResponseOnly, kSendPsn + 2).rule,
      nullptr);
  // The peer's requests have none.
  EXPECT_EQ(Decide(&injector, false, Operation::kSendOnly, kReceivePsn).rule,
            nullptr);
}

// There was no memory to store some requests.
TEST_F(InjectorTest, UnknownWorkRequestsAreNotTakenForOthers) {
  Injector injector = Make("drop tx wr_id=7; ce tx wr_id=9");
  const auto is_hit = [&](uint32_t psn) {
    (void)Decide(&injector, true, Operation::kSendOnly, psn);
    injector.OnSent(kQpn, packet_);
    return Decide(&injector, true, Operation::kSendOnly, psn).rule != nullptr;
  };
  injector.OnPosted(kQpn, {.wr_id = 7});
  injector.OnPostedUnknown(kQpn, 3);
  injector.OnPostRefused(kQpn, 2);
  // Behind an unknown one, another one is unknown, too.
  injector.OnPosted(kQpn, {.wr_id = 9});
  EXPECT_TRUE(is_hit(kSendPsn));
  EXPECT_FALSE(is_hit(kSendPsn + 1));
  EXPECT_FALSE(is_hit(kSendPsn + 2));
  injector.OnPosted(kQpn, {.wr_id = 9});
  EXPECT_TRUE(is_hit(kSendPsn + 3));

  injector.OnPosted(kQpn, {.wr_id = 7});
  injector.OnPosted(kQpn, {.wr_id = 7});
  injector.OnPostedUnknown(kQpn, 1);
  injector.OnPostRefused(kQpn, 2);
  EXPECT_TRUE(is_hit(kSendPsn + 4));
  injector.OnPosted(kQpn, {.wr_id = 9});
  EXPECT_TRUE(is_hit(kSendPsn + 5));

  injector.OnPostedUnknown(kQpn, 1);
  injector.OnFlushed(kQpn);
  injector.OnPosted(kQpn, {.wr_id = 9});
  EXPECT_TRUE(is_hit(kSendPsn + 6));
}

TEST_F(InjectorTest, CallsAtWhichSomethingHappens) {
  Injector injector = Make(
      "delay 2ms~2ms call=ibv_reg_mr nth=2; fail ibv_post_send ENOMEM wr_id=5; "
      "link down call=ibv_post_recv wr_id=9");
  EXPECT_FALSE(injector.concerns(kReceived));
  EXPECT_FALSE(injector.concerns(kTransmitted));
  EXPECT_EQ(Decide(&injector, true, Operation::kSendOnly, kSendPsn).rule,
            nullptr);
  EXPECT_EQ(injector.DecideCall("ibv_reg_mr", std::nullopt, 0).rule, nullptr);
  const NumberedFate slow = injector.DecideCall("ibv_reg_mr", std::nullopt, 0);
  ASSERT_NE(slow.rule, nullptr);
  EXPECT_EQ(slow.number, 2u);
  EXPECT_GE(slow.delay, 2 * kMillisecond);
  EXPECT_LE(slow.delay, 4 * kMillisecond);
  EXPECT_EQ(injector.DecideCall("ibv_post_send", 4, 0).rule, nullptr);
  EXPECT_NE(injector.DecideCall("ibv_post_send", 5, 0).rule, nullptr);
  EXPECT_EQ(injector.DecideCall("ibv_post_recv", std::nullopt, 0).rule,
            nullptr);
  EXPECT_NE(injector.DecideCall("ibv_post_recv", 9, 0).rule, nullptr);
  // Once.
  EXPECT_EQ(injector.DecideCall("ibv_post_recv", 9, 0).rule, nullptr);
}

// A connection of DC takes a PSN, and is no message.
TEST_F(DcTargetTest, AConnectIsNoMessage) {
  Injector injector = Make("drop rx msg=1");
  EXPECT_FALSE(Connects(&injector, kReceivePsn, 1));
  EXPECT_TRUE(Sends(&injector, kReceivePsn + 1));
}

TEST_F(InjectorTest, TheConnectOfAnInitiatorIsNoMessage) {
  Injector injector = Make("drop tx wr_id=7");
  injector.OnPosted(kQpn, {.wr_id = 7});
  const auto is_hit = [&](Operation operation, uint32_t psn) {
    wire::DcEth dceth;
    dceth.from_initiator = true;
    wire::Headers headers;
    headers.bth.opcode = MakeOpcode(Transport::kDc, operation);
    headers.bth.psn = psn & wire::kQpnMask;
    bytes_.assign(
        wire::GetOpcodeInfo(headers.bth.opcode).header_length + wire::kIcrcSize,
        0);
    if (operation == Operation::kConnect) {
      wire::EmitDcConnect(headers.bth, dceth, {}, bytes_.data());
    } else {
      wire::EmitDcHeaders(headers, dceth, bytes_.data());
    }
    EXPECT_EQ(wire::PacketView::Parse(bytes_, &packet_), wire::ParseError::kOk);
    injector.OnSent(kQpn, packet_);
    const Fate fate = injector.Decide({.transmitted = true,
                                       .qpn = kQpn,
                                       .packet = &packet_,
                                       .peer = wire::IpAddress()},
                                      0);
    return fate.rule != nullptr;
  };
  EXPECT_FALSE(is_hit(Operation::kConnect, kSendPsn));
  EXPECT_TRUE(is_hit(Operation::kSendOnly, kSendPsn + 1));
}

class MessagesTest : public InjectorTest {
 protected:
  // A READ request for `bytes` passes. Whether a rule hits it.
  bool Read(Injector* injector, bool transmitted, uint32_t psn,
            uint32_t bytes) {
    wire::Headers headers;
    headers.bth.opcode = MakeOpcode(Transport::kRc, Operation::kReadRequest);
    headers.bth.psn = psn & wire::kQpnMask;
    headers.reth.length = bytes;
    return Pass(injector, transmitted, headers);
  }
  bool Send(Injector* injector, bool transmitted, uint32_t psn,
            Transport transport = Transport::kRc) {
    wire::Headers headers;
    headers.bth.opcode = MakeOpcode(transport, Operation::kSendOnly);
    headers.bth.psn = psn & wire::kQpnMask;
    return Pass(injector, transmitted, headers);
  }

 private:
  bool Pass(Injector* injector, bool transmitted,
            const wire::Headers& headers) {
    bytes_.assign(
        wire::GetOpcodeInfo(headers.bth.opcode).header_length + wire::kIcrcSize,
        0);
    wire::EmitHeaders(headers, bytes_.data());
    EXPECT_EQ(wire::PacketView::Parse(bytes_, &packet_), wire::ParseError::kOk);
    if (transmitted) injector->OnSent(kQpn, packet_);
    return injector
               ->Decide({.transmitted = transmitted,
                         .qpn = kQpn,
                         .packet = &packet_,
                         .peer = wire::IpAddress()},
                        0)
               .rule != nullptr;
  }
};

TEST_F(MessagesTest, ALongReadHasSeveralRequests) {
  Injector injector = Make("drop tx wr_id=8; drop tx msg=3");
  injector.OnPathMtu(kQpn, 1024);
  injector.OnPosted(kQpn, {.wr_id = 7, .read_bytes = 10 * 1024 + 1});
  injector.OnPosted(kQpn, {.wr_id = 8, .read_bytes = 4096});
  injector.OnPosted(kQpn, {.wr_id = 9});
  EXPECT_FALSE(Read(&injector, true, kSendPsn, 4096));
  EXPECT_FALSE(Read(&injector, true, kSendPsn + 4, 4096));
  // Its middle again, and two packets more.
  EXPECT_FALSE(Read(&injector, true, kSendPsn + 6, 4096));
  EXPECT_FALSE(Read(&injector, true, kSendPsn + 10, 1));
  EXPECT_TRUE(Read(&injector, true, kSendPsn + 11, 4096));
  EXPECT_TRUE(Read(&injector, true, kSendPsn + 13, 2048));  // again
  EXPECT_FALSE(Read(&injector, true, kSendPsn + 4, 4096));  // again
  EXPECT_TRUE(Send(&injector, true, kSendPsn + 15));
  EXPECT_EQ(injector.counts()[0].fired, 2u);
  EXPECT_EQ(injector.counts()[1].fired, 1u);
}

TEST_F(MessagesTest, ReceivedInTheirOrder) {
  Injector injector = Make("drop rx msg=2; ce rx msg=4");
  EXPECT_FALSE(Send(&injector, false, kReceivePsn));
  // 1 is lost, and what is beyond it is of no message yet.
  EXPECT_FALSE(Send(&injector, false, kReceivePsn + 2));
  EXPECT_FALSE(Send(&injector, false, kReceivePsn + 3));
  EXPECT_TRUE(Send(&injector, false, kReceivePsn + 1));
  EXPECT_FALSE(Send(&injector, false, kReceivePsn + 2));
  EXPECT_TRUE(Send(&injector, false, kReceivePsn + 3));
  EXPECT_FALSE(Send(&injector, false, kReceivePsn + 4));
  // The first one is lost.
  Injector first = Make("drop rx msg=2");
  EXPECT_FALSE(Send(&first, false, kReceivePsn + 1));
  EXPECT_FALSE(Send(&first, false, kReceivePsn));
  EXPECT_TRUE(Send(&first, false, kReceivePsn + 1));
  // A READ that is asked for again from its middle is the same.
  Injector reads = Make("drop rx msg=2");
  EXPECT_FALSE(Read(&reads, false, kReceivePsn, 4096));
  EXPECT_FALSE(Read(&reads, false, kReceivePsn + 2, 2048));
  EXPECT_TRUE(Read(&reads, false, kReceivePsn + 4, 4096));
}

// The missing request came another way.
TEST_F(MessagesTest, AGapThatStaysDoesNotEndTheCount) {
  Injector injector = Make("drop rx msg=3");
  EXPECT_FALSE(Send(&injector, false, kReceivePsn));
  constexpr uint32_t kWaiting = 4096;
  for (uint32_t i = 0; i <= kWaiting; ++i) {
    ASSERT_FALSE(Send(&injector, false, kReceivePsn + 2 + i)) << i;
  }
  EXPECT_TRUE(Send(&injector, false, kReceivePsn + 3 + kWaiting));
}

// Senders of datagrams count for themselves.
TEST_F(MessagesTest, EachDatagramIsAMessage) {
  Injector injector = Make("drop rx msg=3");
  EXPECT_FALSE(Send(&injector, false, 900, Transport::kUd));
  EXPECT_FALSE(Send(&injector, false, 5, Transport::kUd));
  EXPECT_TRUE(Send(&injector, false, 5, Transport::kUd));
  EXPECT_FALSE(Send(&injector, false, 6, Transport::kUd));
}

TEST_F(MessagesTest, TheyCountAnewAfterAReset) {
  Injector injector = Make("drop tx wr_id=7");
  injector.OnPosted(kQpn, {.wr_id = 6});
  EXPECT_FALSE(Send(&injector, true, kSendPsn));
  injector.OnPosted(kQpn, {.wr_id = 6});  // flushed
  injector.OnReset(kQpn);
  injector.OnPosted(kQpn, {.wr_id = 7});
  EXPECT_TRUE(Send(&injector, true, kSendPsn));
  injector.OnPosted(kQpn, {.wr_id = 6});  // flushed
  injector.OnFlushed(kQpn);
  injector.OnPosted(kQpn, {.wr_id = 7});
  EXPECT_TRUE(Send(&injector, true, kSendPsn + 1));
}

}  // namespace
}  // namespace transport::faults
