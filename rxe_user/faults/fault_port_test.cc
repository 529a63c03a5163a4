// Faults of sent packets, and rules that are added and removed.
#include "rxe_user/faults/fault_port.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rxe_user/faults/fault_port_fixture.h"
#include "wire/aeth.h"
#include "wire/packet.h"

namespace rxe_user {
namespace {

TEST_F(FaultPortTest, ABurstWithoutAHitLeavesAsOne) {
  Open("drop tx nth=9");
  Send(10, 4, 8);
  EXPECT_EQ(inner_->bursts, 1);
  const std::vector<Sent> sent = TakeSent();
  EXPECT_EQ(PsnsOf(sent), (Psns{10, 11, 12, 13}));
  ExpectGood(sent);
  ASSERT_EQ(observer_.shown.size(), 4u);
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ(observer_.shown[i].bytes, sent[i].bytes);
}

TEST_F(FaultPortTest, DropsExactlyOneSentPacket) {
  for (uint32_t n = 1; n <= 4; ++n) {
    observer_.shown.clear();
    Open("drop tx nth=" + std::to_string(n));
    Send(10, 4, 8);
    Psns expected = {10, 11, 12, 13};
    expected.erase(expected.begin() + (n - 1));
    const std::vector<Sent> sent = TakeSent();
    EXPECT_EQ(PsnsOf(sent), expected);
    ExpectGood(sent);
    EXPECT_EQ(PsnsHit(), Psns{9 + n});
    EXPECT_EQ(observer_.shown.size(), 4u);
  }
}

TEST_F(FaultPortTest, SegmentsThatTheInnerPortCannotTakeAreSentOneByOne) {
  Open("drop tx nth=2");
  inner_->max_segments = 1;
  Send(10, 4);
  const std::vector<Sent> sent = TakeSent();
  EXPECT_EQ(PsnsOf(sent), (Psns{10, 12, 13}));
  ExpectGood(sent);
}

TEST_F(FaultPortTest, DuplicatesCorruptsAndMarksASentPacket) {
  Open("duplicate tx nth=2");
  Send(10, 3);
  std::vector<Sent> sent = TakeSent();
  EXPECT_EQ(PsnsOf(sent), (Psns{10, 11, 11, 12}));
  ExpectGood(sent);
  EXPECT_EQ(sent[1].bytes, sent[2].bytes);
  Open("corrupt psn tx nth=2");
  Send(10, 3);
  sent = TakeSent();
  EXPECT_EQ(PsnsOf(sent), (Psns{10, 11 ^ 1, 12}));
  EXPECT_FALSE(IsGood(sent[1]));
  EXPECT_TRUE(IsGood(sent[0]) && IsGood(sent[2]));
  Open("corrupt psn resealed tx nth=2");
  Send(10, 3);
  sent = TakeSent();
  EXPECT_EQ(PsnsOf(sent), (Psns{10, 11 ^ 1, 12}));
  ExpectGood(sent);
  Open("ce tx nth=2");
  Send(10, 3);
  sent = TakeSent();
  EXPECT_EQ(PsnsOf(sent), (Psns{10, 11, 12}));
  ExpectGood(sent);
  EXPECT_EQ(sent[0].traffic_class, 2);
  EXPECT_EQ(sent[1].traffic_class, 3);
  EXPECT_EQ(sent[2].traffic_class, 2);
}

TEST_F(FaultPortTest, DelaysAndReordersASentPacket) {
  Open("delay 5ms tx nth=2");
  Send(10, 3);
  EXPECT_EQ(PsnsOf(TakeSent()), (Psns{10, 12}));
  now += 5 * kMillisecond;
  (void)Receive();
  std::vector<Sent> sent = TakeSent();
  EXPECT_EQ(PsnsOf(sent), Psns{11});
  ExpectGood(sent);
  Open("reorder 3 tx nth=2");
  Send(10, 3);
  Send(13, 3);
  sent = TakeSent();
  EXPECT_EQ(PsnsOf(sent), (Psns{10, 12, 13, 14, 11, 15}));
  ExpectGood(sent);
}

// A recording has the hop limit that each packet travels with, whichever rule
// hits it and whenever it leaves.
TEST_F(FaultPortTest, SentPacketsAreShownWithTheirHopLimits) {
  for (const std::string rule :
       {"delay 5ms", "reorder 3", "duplicate", "ce", "corrupt payload"}) {
    observer_.shown.clear();
    Open(rule + " tx nth=2");
    Send(10, 3);
    Send(13, 3);
    now += 5 * kMillisecond;
    (void)Receive();
    Send(16, 1);
    std::map<uint32_t, uint8_t> shown;
    for (const Observer::Shown& packet : observer_.shown) {
      shown[wire::LoadBe24(&packet.bytes[9])] = packet.hop_limit;
    }
    EXPECT_EQ(shown.size(), 7u) << rule;
    for (const Sent& packet : TakeSent()) {
      EXPECT_EQ(64 - packet.hop_mark, shown[packet.psn()])
          << rule << ", " << packet.psn();
    }
    // Different bursts have different hop limits.
    EXPECT_EQ(shown[10], shown[12]) << rule;
    EXPECT_NE(shown[10], shown[13]) << rule;
    EXPECT_NE(shown[13], shown[16]) << rule;
  }
}

// A burst may have the responses of one and the ACK of another (DC, XRC).
TEST_F(FaultPortTest, TwoQueuePairsShareABurst) {
  Open("drop tx qp=@1");
  faults_->OnCreated(kQpn + 1);
  Send(10, 3, kPayload, kQpn + 1);
  EXPECT_EQ(PsnsOf(TakeSent()), Psns{12});
  Open("drop tx qp=@2");
  faults_->OnCreated(kQpn + 1);
  Send(10, 3, kPayload, kQpn + 1);
  EXPECT_EQ(PsnsOf(TakeSent()), (Psns{10, 11}));
}

TEST_F(FaultPortTest, NothingIsLostWhileSendsAreBlocked) {
  Open("ce tx nth=2");
  Burst* const burst = port_->Begin(flow_);
  for (uint32_t psn = 10; psn < 13; ++psn) {
    const std::vector<uint8_t> packet = Packet(psn);
    std::copy(packet.begin(), packet.end(), burst->Reserve(packet.size()));
    burst->Commit();
  }
  inner_->is_blocked = true;
  port_->Queue();
  EXPECT_EQ(PsnsOf(TakeSent()), Psns{});
  inner_->is_blocked = false;
  EXPECT_TRUE(port_->blocked());
  EXPECT_EQ(port_->Begin(flow_), nullptr);
  port_->Flush();
  EXPECT_FALSE(port_->blocked());
  const std::vector<Sent> sent = TakeSent();
  EXPECT_EQ(PsnsOf(sent), (Psns{10, 11, 12}));
  ExpectGood(sent);
}

TEST_F(FaultPortTest, NoAckDropsWhatAcknowledgesTheRequest) {
  const auto acknowledge = [this](uint32_t psn) {
    Burst* const burst = port_->Begin(flow_);
    ASSERT_NE(burst, nullptr);
    wire::Headers headers;
    headers.bth.opcode = MakeOpcode(Transport::kRc, Operation::kAcknowledge);
    headers.bth.psn = psn;
    headers.aeth.syndrome = wire::MakeAckSyndrome(0);
    wire::EmitHeaders(headers, burst->Reserve(wire::kAcknowledgeSize));
    burst->Commit();
    ObservedPacket shown;
    shown.direction = transport::Direction::kTransmitted;
    shown.qpn = kQpn;
    endpoint_observer_->OnPacket(shown);
    port_->Queue();
  };
  Open("no-ack nth=2");
  Arrive(10, 3);
  EXPECT_EQ(PsnsOf(Receive()), (Psns{10, 11, 12}));
  EXPECT_EQ(PsnsHit(), Psns{11});
  acknowledge(10);
  EXPECT_EQ(PsnsOf(TakeSent()), Psns{10});
  acknowledge(12);
  EXPECT_EQ(PsnsOf(TakeSent()), Psns{});
  // Observers see the ACK, with the rule, and know that it was not sent.
  EXPECT_EQ(PsnsHit(), (Psns{11, 12}));
  EXPECT_TRUE(observer_.shown.back().dropped);
  EXPECT_EQ(faults_->Status()[0].fired, 1u);
  Arrive(11, 1);
  EXPECT_EQ(PsnsOf(Receive()), Psns{11});
  acknowledge(12);
  EXPECT_EQ(PsnsOf(TakeSent()), Psns{12});
}

TEST_F(FaultPortTest, RefusedRequestsReachTheResponder) {
  Open("rnr nth=2; nak REM_OP_ERR nth=3; rnr 10.24ms nth=4");
  Arrive(10, 5);
  const std::vector<Sent> received = Receive();
  EXPECT_EQ(PsnsOf(received), (Psns{10, 11, 12, 13, 14}));
  ExpectGood(received);
  EXPECT_EQ(PsnsHit(), (Psns{11, 12, 13}));
  const auto refuse = [this](uint32_t psn) {
    return faults_->Refuse(kQpn,
                           {.psn = psn, .requester = {}, .min_rnr_timer = 12});
  };
  EXPECT_EQ(refuse(10), std::nullopt);
  EXPECT_EQ(refuse(11), wire::MakeRnrSyndrome(12));
  EXPECT_EQ(refuse(11), std::nullopt);
  EXPECT_EQ(refuse(12),
            wire::MakeNakSyndrome(wire::NakCode::kRemoteOperational));
  EXPECT_EQ(refuse(13), wire::MakeRnrSyndrome(20));
  EXPECT_EQ(refuse(14), std::nullopt);
  EXPECT_TRUE(faults_->refuses());
}

TEST_F(FaultPortTest, RulesComeAndGo) {
  OpenWithoutRules();
  Send(10, 2);
  EXPECT_EQ(PsnsOf(TakeSent()), (Psns{10, 11}));
  AddRules("drop tx nth=2; drop rx nth=1; delay 1ms rx nth=2");
  Send(12, 2);
  EXPECT_EQ(PsnsOf(TakeSent()), Psns{12});
  Arrive(50, 3);
  EXPECT_EQ(PsnsOf(Receive()), Psns{52});
  std::vector<FaultRuleStatus> removed;
  EXPECT_EQ(faults_->Remove({2, 4}, &removed), std::nullopt);
  EXPECT_EQ(removed.size(), 2u);
  EXPECT_NE(faults_->Remove({2}, &removed), std::nullopt);
  EXPECT_EQ(faults_->Remove({}, &removed), std::nullopt);
  // Held packets arrive when they are due.
  Arrive(53, 1);
  EXPECT_EQ(PsnsOf(Receive()), Psns{53});
  now += kMillisecond;
  EXPECT_EQ(PsnsOf(Receive()), Psns{51});
  Send(14, 3);
  const std::vector<Sent> sent = TakeSent();
  EXPECT_EQ(PsnsOf(sent), (Psns{14, 15, 16}));
  ExpectGood(sent);
  EXPECT_EQ(inner_->bursts, 3);  // unchanged: one for each Send
}

// The acknowledgement of the peer's last message may be among the held packets.
TEST_F(FaultPortTest, SendsWhatItHoldsWhenItIsClosed) {
  std::vector<Sent> sent;
  Open("delay 1s tx nth=1; reorder 5 tx nth=2");
  inner_->sent_at_end = &sent;
  Send(10, 3);
  EXPECT_EQ(PsnsOf(TakeSent()), Psns{12});
  port_.reset();
  EXPECT_EQ(PsnsOf(sent), (Psns{10, 11}));
  ExpectGood(sent);
  Open("stall 1s tx nth=1");
  inner_->sent_at_end = &sent;
  Send(10, 3);
  EXPECT_EQ(PsnsOf(TakeSent()), Psns{});
  port_.reset();
  EXPECT_EQ(PsnsOf(sent), (Psns{10, 11, 12}));
  ExpectGood(sent);
}

TEST_F(FaultPortTest, NothingIsSentInAChildOfFork) {
  std::vector<Sent> sent;
  Open("delay 1s tx");
  inner_->sent_at_end = &sent;
  Send(10, 3);
  port_->AbandonInChild();
  port_.reset();
  EXPECT_EQ(PsnsOf(sent), Psns{});
}

TEST_F(FaultPortTest, DropsWhatItHasNoRoomFor) {
  Open("delay 1s rx");
  for (size_t sent = 0; sent < FaultPort::kMaxHeld; sent += 64) {
    Arrive(static_cast<uint32_t>(sent), 64);
    EXPECT_EQ(PsnsOf(Receive()), Psns{});
  }
  Arrive(1 << 20, 1);
  EXPECT_EQ(PsnsOf(Receive()), Psns{});
  now += transport::kSecond;
  EXPECT_EQ(Receive().size(), FaultPort::kMaxHeld);
}

}  // namespace
}  // namespace rxe_user
