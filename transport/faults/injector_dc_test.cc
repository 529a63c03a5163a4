// DC targets: what is counted for each initiator, and for each of its
// connections.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "transport/faults/rule_parser.h"
#include "transport/testing/injector_fixture.h"
#include "wire/aeth.h"
#include "wire/dc.h"
#include "wire/packet.h"

namespace transport::faults {
namespace {

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
  // The same with initiator 0x11 of host 1. Whether a rule hits the packet.
  bool ConnectIsHit(Injector* injector, uint32_t psn, uint32_t session) {
    session_ = session;
    return Pass(injector, false, Operation::kConnect, psn, 0x11, 1).rule !=
           nullptr;
  }
  bool SendIsHit(Injector* injector, uint32_t psn) {
    return Pass(injector, false, Operation::kSendOnly, psn, 0x11, 1).rule !=
           nullptr;
  }
  // Whether no rule hits the target's ACK, which may be that of a CONNECT.
  bool AnswerPasses(Injector* injector, uint32_t psn, bool to_connect = false) {
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
  // Another initiator's request does not end the fault.
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
  EXPECT_FALSE(ConnectIsHit(&injector, 7, 1));
  EXPECT_TRUE(ConnectIsHit(&injector, 7, 1));  // the same one again
  EXPECT_FALSE(SendIsHit(&injector, 8));
  EXPECT_FALSE(ConnectIsHit(&injector, 7, 2));
  EXPECT_FALSE(SendIsHit(&injector, 8));
  EXPECT_TRUE(SendIsHit(&injector, 8));
}

TEST_F(DcTargetTest, PsnsCountFromTheConnect) {
  Injector injector = Make("drop psn=+1");
  for (const uint32_t psn : {100u, 0xffffffu, 40u}) {
    EXPECT_FALSE(ConnectIsHit(&injector, psn, psn));
    EXPECT_TRUE(AnswerPasses(&injector, psn, true));
    const uint32_t first = (psn + 1) & wire::kPsnMask;
    EXPECT_TRUE(SendIsHit(&injector, first));
    EXPECT_FALSE(AnswerPasses(&injector, first));
    EXPECT_FALSE(SendIsHit(&injector, first + 1));
  }
  // A late packet of an earlier session.
  session_ = 100;
  EXPECT_FALSE(SendIsHit(&injector, 102));
  session_ = 40;
  EXPECT_TRUE(SendIsHit(&injector, 41));
}

// With rules for sent packets alone, the injector does not see CONNECTs.
TEST_F(DcTargetTest, AnAnswerTellsOfTheConnect) {
  Injector injector = Make("drop tx psn=+1");
  for (const uint32_t psn : {100, 40}) {
    session_ = psn;
    EXPECT_TRUE(AnswerPasses(&injector, psn, true));
    EXPECT_FALSE(AnswerPasses(&injector, psn + 1));
    EXPECT_TRUE(AnswerPasses(&injector, psn + 2));
  }
}

TEST_F(DcTargetTest, MessagesCountFromTheConnect) {
  Injector injector = Make("drop rx msg=2");
  for (const uint32_t psn : {100, 40}) {
    EXPECT_FALSE(ConnectIsHit(&injector, psn, psn));
    // The first message was lost before the injector: this one is beyond a gap.
    EXPECT_FALSE(SendIsHit(&injector, psn + 2));
    EXPECT_FALSE(SendIsHit(&injector, psn + 1));
    EXPECT_TRUE(SendIsHit(&injector, psn + 2));
    EXPECT_FALSE(SendIsHit(&injector, psn + 3));
  }
}

TEST_F(DcTargetTest, NoAckEndsWithTheConnection) {
  Injector injector = Make("no-ack nth=1");
  EXPECT_FALSE(ConnectIsHit(&injector, 100, 1));
  EXPECT_TRUE(SendIsHit(&injector, 101));
  EXPECT_FALSE(AnswerPasses(&injector, 101));
  EXPECT_FALSE(ConnectIsHit(&injector, 500, 2));
  EXPECT_TRUE(AnswerPasses(&injector, 500, true));
  EXPECT_FALSE(SendIsHit(&injector, 501));
  EXPECT_TRUE(AnswerPasses(&injector, 501));
}

TEST_F(DcTargetTest, RefusalsEndWithTheConnection) {
  Injector injector = Make("rnr nth=1");
  EXPECT_FALSE(ConnectIsHit(&injector, 100, 1));
  EXPECT_TRUE(SendIsHit(&injector, 101));
  EXPECT_FALSE(ConnectIsHit(&injector, 100, 2));
  EXPECT_FALSE(SendIsHit(&injector, 101));
  EXPECT_EQ(injector.TakeRefusal(kQpn, Requester(0x11, 1), 101), nullptr);
}

// The CONNECT of the connection has passed before there were rules, or between
// two of them.
TEST_F(DcTargetTest, AConnectThatWasNotSeen) {
  Injector injector = Make("drop rx psn=+1");
  session_ = 3;
  EXPECT_FALSE(SendIsHit(&injector, 9));
  EXPECT_TRUE(SendIsHit(&injector, 10));
  ASSERT_TRUE(injector.Remove(1));
  std::vector<Rule> rules;
  ASSERT_FALSE(ParseRules("drop rx psn=+1", &rules).has_value());
  ASSERT_TRUE(injector.Add(rules, 0));
  EXPECT_TRUE(SendIsHit(&injector, 10));  // of the same connection
  ASSERT_TRUE(injector.Remove(2));
  ASSERT_TRUE(injector.Add(std::move(rules), 0));
  session_ = 4;
  EXPECT_FALSE(SendIsHit(&injector, 500));
  EXPECT_TRUE(SendIsHit(&injector, 501));
}

// A CONNECT of the previous session is late: the present session continues.
TEST_F(DcTargetTest, ALateConnectChangesNothing) {
  Injector injector = Make("drop psn=+1");
  EXPECT_FALSE(ConnectIsHit(&injector, 7, 1));
  EXPECT_FALSE(ConnectIsHit(&injector, 100, 2));
  EXPECT_FALSE(ConnectIsHit(&injector, 7, 1));
  session_ = 2;
  EXPECT_TRUE(SendIsHit(&injector, 101));
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

// Each connection has its own chances, which are the same in each run.
TEST_F(DcTargetTest, ChanceDiffersBetweenConnections) {
  const auto run = [this](uint32_t first_psn) {
    Injector injector = Make("drop rx p=50%");
    std::vector<bool> hits;
    for (uint32_t session = 1; session <= 64; ++session) {
      const uint32_t psn = (first_psn + 10 * session) & wire::kPsnMask;
      (void)ConnectIsHit(&injector, psn, session);
      hits.push_back(SendIsHit(&injector, psn + 1));
    }
    return hits;
  };
  const std::vector<bool> first = run(0);
  EXPECT_GT(std::ranges::count(first, true), 16);
  EXPECT_GT(std::ranges::count(first, false), 16);
  EXPECT_EQ(first, run(7000));
}

// A CONNECT of DC takes a PSN, but is no message.
TEST_F(DcTargetTest, AConnectIsNoMessage) {
  Injector injector = Make("drop rx msg=1");
  EXPECT_FALSE(ConnectIsHit(&injector, kReceivePsn, 1));
  EXPECT_TRUE(SendIsHit(&injector, kReceivePsn + 1));
}

}  // namespace
}  // namespace transport::faults
