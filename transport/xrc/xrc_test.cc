// XRC targets as a peer sees them, packet by packet, and the limits of an
// initiator. The parts shared with RC are tested there.
#include <cerrno>
#include <initializer_list>
#include <map>
#include <string>

#include "gtest/gtest.h"
#include "transport/testing/bring_up.h"
#include "transport/testing/wire_peer.h"

namespace transport {
namespace {

using enum wire::Operation;

class FakeDomain : public XrcDomain {
 public:
  bool FindSrq(uint32_t srqn, XrcSrq* out) override {
    const auto it = srqs.find(srqn);
    if (it == srqs.end()) return false;
    *out = it->second;
    return true;
  }
  std::map<uint32_t, XrcSrq> srqs;
};

// A target in RTS, and two SRQs with a protection domain and a completion queue
// each: `kFirst` has the domain of `peer.target`, `kSecond` that of `other`.
class XrcTargetTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kFirst = 0x11;
  static constexpr uint32_t kSecond = 0x123456;
  static constexpr uint32_t kNone = 0x77;
  static constexpr PdId kOtherPd = 8;
  static constexpr uint64_t kOtherVa = 0x900000;

  XrcTargetTest() {
    other =
        &peer.memory.Add(kOtherVa, 64 * 1024, kOtherPd, WirePeer::kAllAccess);
    domain.srqs[kFirst] = {WirePeer::kPd, &first, &first_cq};
    domain.srqs[kSecond] = {kOtherPd, &second, &second_cq};
    QpConfig config = peer.qp->config();
    config.type = QpType::kXrcTarget;
    config.pd = 0;
    config.send_cq = config.recv_cq = nullptr;
    config.xrc = &domain;
    peer.qp.reset();
    peer.qp = MakeQueuePair(peer.endpoint, config);
    EXPECT_EQ(BringUp(*peer.qp, peer.attributes, peer.now), 0);
  }

  wire::Headers ForSrq(wire::Headers headers, uint32_t srqn) {
    headers.bth.opcode = wire::MakeOpcode(
        wire::Transport::kXrc, wire::OperationOf(headers.bth.opcode));
    headers.xrc_srqn = srqn;
    return headers;
  }
  wire::Headers Request(wire::Operation operation, uint32_t psn, uint32_t srqn,
                        bool ack_req = true) {
    return ForSrq(peer.Request(operation, psn, ack_req), srqn);
  }
  // Accesses the region of the second SRQ's protection domain.
  wire::Headers OtherRdma(wire::Operation operation, uint32_t psn,
                          uint32_t srqn, uint32_t length) {
    wire::Headers headers = Request(operation, psn, srqn);
    headers.reth = {other->va, other->rkey, length};
    return headers;
  }
  void PostFirst(uint64_t wr_id, uint32_t length, uint64_t offset = 0) {
    first.queue.push_back(
        {wr_id,
         WirePeer::kPd,
         {{peer.target->va + offset, length, peer.target->lkey}}});
  }
  void PostSecond(uint64_t wr_id, uint32_t length) {
    second.queue.push_back(
        {wr_id, kOtherPd, {{other->va, length, other->lkey}}});
  }
  // "wr_id status byte_len", joined by "; ".
  static std::string Take(RecordingCq& cq) {
    std::string text;
    for (const Completion& c : cq.Take()) {
      if (!text.empty()) text += "; ";
      text += std::to_string(c.wr_id) + " " +
              std::to_string(static_cast<int>(c.status)) + " " +
              std::to_string(c.byte_len);
      EXPECT_EQ(c.qpn, WirePeer::kQpn);
    }
    return text;
  }

  FakeSrq first;
  FakeSrq second;
  RecordingCq first_cq;
  RecordingCq second_cq;
  FakeDomain domain;
  WirePeer peer;
  FakeMemory::Region* other = nullptr;
};

// READ responses are those of RC (responder_pace_test.cc).
TEST_F(XrcTargetTest, ReadResponsesSlowDownAfterACnp) {
  peer.Deliver(OtherRdma(kReadRequest, 100, kSecond, 64 * 1024));
  peer.Transmit();
  EXPECT_EQ(peer.endpoint.NextTimeout(), kNever);
  wire::Headers cnp;
  cnp.bth.opcode = wire::kOpcodeCnp;
  cnp.bth.becn = true;
  cnp.bth.dest_qpn = WirePeer::kQpn;
  peer.Deliver(cnp, wire::kCnpPayloadSize);
  peer.Deliver(OtherRdma(kReadRequest, 356, kSecond, 64 * 1024));
  peer.Transmit();
  EXPECT_GT(peer.endpoint.NextTimeout(), peer.now);
  EXPECT_LT(peer.endpoint.NextTimeout(), peer.now + kMillisecond);
}

TEST_F(XrcTargetTest, EachSendGoesToTheSrqThatItNames) {
  PostFirst(1, 64);
  PostFirst(2, 64, 1000);
  PostSecond(3, 64);
  peer.Deliver(Request(kSendOnly, 100, kSecond), 5);
  peer.Deliver(Request(kSendOnly, 101, kFirst), 6);
  peer.Deliver(Request(kSendOnlyImm, 102, kFirst), 7);
  EXPECT_EQ(peer.Transmit(), "ACK 102 msn 3");
  EXPECT_EQ(Take(first_cq), "1 0 6; 2 0 7");
  EXPECT_EQ(Take(second_cq), "3 0 5");
  EXPECT_EQ(other->bytes[4], 5);
  EXPECT_EQ(other->bytes[5], 0);
}

// An application answers a message by its initiator. The target's ACK of that
// message ends the burst of the answer, if both are one flow and go to one
// slot.
TEST_F(XrcTargetTest, TheAckLeavesWithTheAnswer) {
  const auto answer = [&](QpType type, uint32_t psn, const QpAttributes& to) {
    QpConfig config = peer.qp->config();
    config.type = type;
    config.qpn = 0x12;
    config.pd = WirePeer::kPd;
    config.xrc = nullptr;
    config.send_cq = config.recv_cq = &peer.send_cq;
    const auto back = MakeQueuePair(peer.endpoint, config);
    EXPECT_EQ(BringUp(*back, to, peer.now), 0);
    PostFirst(1, 64);
    peer.Deliver(Request(kSendOnly, psn, kFirst), 5);
    const Sge sge = {peer.target->va, 32, peer.target->lkey};
    SendRequest request;
    request.opcode = SendOpcode::kSend;
    request.sges = {&sge, 1};
    EXPECT_EQ(back->PostSend(request, peer.now), 0);
    const uint64_t before = peer.qp->counters().tx_packets;
    const std::string sent = peer.TransmitOne();
    EXPECT_EQ(peer.qp->counters().tx_packets - before, 1u);
    return sent;
  };
  QpAttributes to = peer.attributes;
  to.sq_psn = 500;
  EXPECT_EQ(answer(QpType::kXrcInitiator, 100, to),
            "XRC_SEND_ONLY 500 [32]; ACK 100 msn 1");
  EXPECT_FALSE(peer.endpoint.HasTransmit());
  EXPECT_EQ(answer(QpType::kRc, 101, to), "ACK 101 msn 2");
  to.dest_qpn ^= 1u << 12;
  EXPECT_EQ(answer(QpType::kXrcInitiator, 102, to), "ACK 102 msn 3");
  to = peer.attributes;
  ++to.av.source_port;
  EXPECT_EQ(answer(QpType::kXrcInitiator, 103, to), "ACK 103 msn 4");
}

TEST_F(XrcTargetTest, AMessageOfSeveralPacketsGoesToTheSrqOfItsFirst) {
  PostFirst(1, 1000);
  peer.Deliver(Request(kSendFirst, 100, kFirst, false), 256);
  peer.Deliver(Request(kSendMiddle, 101, kFirst, false), 256);
  peer.Deliver(Request(kSendLast, 102, kFirst), 3);
  EXPECT_EQ(peer.Transmit(), "ACK 102 msn 1");
  EXPECT_EQ(Take(first_cq), "1 0 515");
}

// The payload would go to an SRQ that the packet does not name.
TEST_F(XrcTargetTest, AnotherSrqWithinAMessageIsAnInvalidRequest) {
  for (const uint32_t srqn : {kSecond, kNone}) {
    for (const bool write : {false, true}) {
      PostFirst(1, 1000);
      wire::Headers begin = Request(kSendFirst, 100, kFirst, false);
      if (write) {
        begin = ForSrq(peer.Write(kWriteFirst, 100, 0, 300), kFirst);
      }
      peer.Deliver(begin, 256);
      peer.Deliver(Request(write ? kWriteLast : kSendLast, 101, srqn), 44);
      EXPECT_EQ(peer.Transmit(), "NAK invalid-request 101 msn 0");
      EXPECT_EQ(peer.qp->state(), QpState::kErr);
      EXPECT_EQ(peer.TakeEvents(), "16 2");
      EXPECT_EQ(peer.target->bytes[256], 0);
      Take(first_cq);
      first.queue.clear();
      ASSERT_EQ(peer.Modify(QpState::kReset), 0);
      ASSERT_EQ(BringUp(*peer.qp, peer.attributes, peer.now), 0);
    }
  }
}

// Out of order it may come from anyone: the peer is asked to retransmit.
TEST_F(XrcTargetTest, AnotherSrqWithinAMessageOutOfOrder) {
  PostFirst(1, 1000);
  peer.Deliver(Request(kSendLast, 101, kSecond), 3);
  EXPECT_EQ(peer.Transmit(), "NAK sequence 100 msn 0");
  peer.Deliver(Request(kSendFirst, 100, kFirst, false), 256);
  EXPECT_EQ(peer.Transmit(), "NAK sequence 101 msn 0");
  peer.Deliver(Request(kSendLast, 101, kFirst), 3);
  EXPECT_EQ(peer.Transmit(), "ACK 101 msn 1");
  EXPECT_EQ(Take(first_cq), "1 0 259");
}

TEST_F(XrcTargetTest, AnEmptySrqIsNotReady) {
  PostSecond(1, 64);
  peer.Deliver(Request(kSendOnly, 100, kFirst), 5);
  EXPECT_EQ(peer.Transmit(), "RNR 12 100 msn 0");
  PostFirst(2, 64);
  peer.Deliver(Request(kSendOnly, 100, kFirst), 5);
  EXPECT_EQ(peer.Transmit(), "ACK 100 msn 1");
  EXPECT_EQ(Take(first_cq), "2 0 5");
}

TEST_F(XrcTargetTest, AnUnknownSrqIsAnInvalidRequest) {
  peer.Deliver(Request(kSendOnly, 100, kNone), 5);
  EXPECT_EQ(peer.Transmit(), "NAK invalid-request 100 msn 0");
  EXPECT_EQ(peer.qp->state(), QpState::kErr);
  // IBV_EVENT_QP_LAST_WQE_REACHED, IBV_EVENT_QP_REQ_ERR.
  EXPECT_EQ(peer.TakeEvents(), "16 2");
}

TEST_F(XrcTargetTest, AReservedOpcodeIsAnInvalidRequest) {
  wire::Headers headers = Request(kReserved15, 100, kFirst);
  peer.Deliver(headers, 0);
  EXPECT_EQ(peer.Transmit(), "NAK invalid-request 100 msn 0");
  EXPECT_EQ(peer.qp->state(), QpState::kErr);
  EXPECT_EQ(peer.TakeEvents(), "16 2");
}

TEST_F(XrcTargetTest, RemoteKeysAreOfTheProtectionDomainOfTheSrq) {
  peer.Deliver(OtherRdma(kWriteOnly, 100, kSecond, 8), 8);
  EXPECT_EQ(peer.Transmit(), "ACK 100 msn 1");
  EXPECT_EQ(other->bytes[7], 8);
  peer.Deliver(OtherRdma(kWriteOnly, 101, kFirst, 8), 8);
  EXPECT_EQ(peer.Transmit(), "NAK access 101 msn 1");
}

// Responses are built when they are sent, and again for a duplicate request,
// even after requests for other SRQs.
TEST_F(XrcTargetTest, AReadKeepsTheProtectionDomainOfItsSrq) {
  for (size_t i = 0; i < 300; ++i) other->bytes[i] = static_cast<uint8_t>(i);
  PostFirst(1, 64);
  peer.Deliver(OtherRdma(kReadRequest, 100, kSecond, 300));
  peer.Deliver(Request(kSendOnly, 102, kFirst), 5);
  EXPECT_EQ(peer.Transmit(),
            "READ_FIRST 100 msn 1 [256]; READ_LAST 101 msn 1 [44] | "
            "ACK 102 msn 2");
  peer.Deliver(OtherRdma(kReadRequest, 100, kSecond, 300));
  EXPECT_EQ(peer.Transmit(),
            "READ_FIRST 100 msn 1 [256]; READ_LAST 101 msn 1 [44]");
}

TEST_F(XrcTargetTest, Atomics) {
  wire::Headers headers = ForSrq(peer.Atomic(kFetchAdd, 100, 8, 5), kFirst);
  peer.Deliver(headers);
  EXPECT_EQ(peer.Transmit(), "ATOMIC 100 msn 1 = 0");
  headers = ForSrq(peer.Atomic(kCompareSwap, 101, 8, 9, 5), kFirst);
  peer.Deliver(headers);
  EXPECT_EQ(peer.Transmit(), "ATOMIC 101 msn 2 = 5");
  EXPECT_EQ(peer.target->bytes[8], 9);
}

TEST_F(XrcTargetTest, WriteWithImmediateTakesAReceiveOfTheSrq) {
  PostSecond(4, 0);
  wire::Headers headers = OtherRdma(kWriteOnlyImm, 100, kSecond, 16);
  peer.Deliver(headers, 16);
  EXPECT_EQ(peer.Transmit(), "ACK 100 msn 1");
  EXPECT_EQ(Take(second_cq), "4 0 16");
  EXPECT_EQ(Take(first_cq), "");
}

TEST_F(XrcTargetTest, DestroyingAnSrqEndsItsMessage) {
  PostFirst(1, 1000);
  peer.Deliver(Request(kSendFirst, 100, kFirst, false), 256);
  domain.srqs.erase(kFirst);
  peer.qp->ForgetSrq(&first);
  peer.Deliver(Request(kSendLast, 101, kFirst), 3);
  EXPECT_EQ(peer.Transmit(), "NAK invalid-request 101 msn 0");
  EXPECT_EQ(Take(first_cq), "");
}

TEST_F(XrcTargetTest, DestroyingAnSrqAffectsNoOtherMessage) {
  PostFirst(1, 1000);
  peer.Deliver(Request(kSendFirst, 100, kFirst, false), 256);
  domain.srqs.erase(kSecond);
  peer.qp->ForgetSrq(&second);
  peer.Deliver(Request(kSendLast, 101, kFirst), 3);
  EXPECT_EQ(peer.Transmit(), "ACK 101 msn 1");
  EXPECT_EQ(Take(first_cq), "1 0 259");
}

TEST_F(XrcTargetTest, APacketOutOfOrderUsesItsOwnSrq) {
  PostFirst(1, 64);
  PostSecond(2, 64);
  peer.Deliver(Request(kSendOnly, 101, kSecond), 5);
  peer.Transmit();
  peer.Deliver(Request(kSendOnly, 100, kFirst), 6);
  EXPECT_EQ(peer.Transmit(), "ACK 101 msn 2");
  EXPECT_EQ(Take(first_cq), "1 0 6");
  EXPECT_EQ(Take(second_cq), "2 0 5");
}

// A forged packet with a guessed PSN takes a receive that is too short. The
// real packet is for another SRQ.
TEST_F(XrcTargetTest, AReceiveOfARefusedPacketIsFlushedToItsOwnSrq) {
  PostFirst(1, 64);
  PostSecond(2, 4);
  peer.Deliver(Request(kSendOnly, 101, kSecond), 5);
  peer.Transmit();
  peer.Deliver(Request(kSendOnly, 100, kFirst), 6);
  EXPECT_EQ(peer.qp->state(), QpState::kRts);
  peer.Transmit();
  EXPECT_EQ(Take(first_cq), "1 0 6");
  PostFirst(3, 64);
  peer.Deliver(Request(kSendOnly, 101, kFirst), 7);
  EXPECT_EQ(peer.Transmit(), "ACK 101 msn 2");
  EXPECT_EQ(Take(second_cq), "2 5 0");
  EXPECT_EQ(Take(first_cq), "3 0 7");
}

TEST_F(XrcTargetTest, ErrorFlushesTheReceiveInUse) {
  PostFirst(1, 1000);
  PostFirst(2, 1000);
  peer.Deliver(Request(kSendFirst, 100, kFirst, false), 256);
  ASSERT_EQ(peer.Modify(QpState::kErr), 0);
  EXPECT_EQ(Take(first_cq), "1 5 0");
  EXPECT_EQ(first.queue.size(), 1u);
  EXPECT_EQ(peer.TakeEvents(), "16");
}

TEST_F(XrcTargetTest, NothingCanBePosted) {
  EXPECT_EQ(peer.qp->PostSend({.wr_id = 1}, peer.now), EINVAL);
  EXPECT_EQ(peer.qp->PostReceive({.wr_id = 1}, peer.now), EINVAL);
}

TEST_F(XrcTargetTest, ResponsesAndOtherTransportsAreDropped) {
  wire::Headers ack = Request(kAcknowledge, 5000, kFirst);
  peer.Deliver(ack);
  peer.Deliver(peer.Request(kSendOnly, 100, true), 5);
  EXPECT_EQ(peer.qp->counters().dropped_type, 2u);
  EXPECT_EQ(peer.Transmit(), "");
}

TEST_F(XrcTargetTest, DrainsAtOnce) {
  peer.attributes.en_sqd_async_notify = true;
  peer.attributes.state = QpState::kSqd;
  ASSERT_EQ(peer.qp->Modify(peer.attributes, kQpState | kQpEnSqdAsyncNotify,
                            peer.now),
            0);
  EXPECT_EQ(peer.TakeEvents(), "5");  // IBV_EVENT_SQ_DRAINED
  PostFirst(1, 64);
  peer.Deliver(Request(kSendOnly, 100, kFirst), 6);
  EXPECT_EQ(peer.Transmit(), "ACK 100 msn 1");
}

TEST_F(XrcTargetTest, ResetClearsEverything) {
  PostFirst(1, 1000);
  peer.Deliver(Request(kSendFirst, 100, kFirst, false), 256);
  ASSERT_EQ(peer.Modify(QpState::kReset), 0);
  EXPECT_EQ(Take(first_cq), "");
  ASSERT_EQ(BringUp(*peer.qp, peer.attributes, peer.now), 0);
  PostFirst(2, 64);
  peer.Deliver(Request(kSendOnly, 100, kFirst), 6);
  EXPECT_EQ(peer.Transmit(), "ACK 100 msn 1");
  EXPECT_EQ(Take(first_cq), "2 0 6");
}

TEST(XrcInitiatorTest, TakesNoRequestsAndNoReceives) {
  WirePeer peer;
  QpConfig config = peer.qp->config();
  config.type = QpType::kXrcInitiator;
  config.recv_cq = nullptr;
  peer.qp.reset();
  peer.qp = MakeQueuePair(peer.endpoint, config);
  ASSERT_EQ(BringUp(*peer.qp, peer.attributes, peer.now), 0);
  EXPECT_EQ(peer.PostReceive(1, {64}), EINVAL);
  wire::Headers headers = peer.Request(kSendOnly, 100, true);
  headers.bth.opcode = wire::MakeOpcode(wire::Transport::kXrc, kSendOnly);
  peer.Deliver(headers, 5);
  EXPECT_EQ(peer.qp->counters().dropped_type, 1u);
  EXPECT_EQ(peer.Transmit(), "");
  ASSERT_EQ(peer.Modify(QpState::kErr), 0);
  EXPECT_EQ(peer.TakeEvents(), "");
}

}  // namespace
}  // namespace transport
