// The queue pair without its service: states, admission of packets, congestion
// notification, receives.
#include <cerrno>
#include <functional>

#include "gtest/gtest.h"
#include "transport/qp/receive_queue.h"
#include "transport/queue_pairs.h"
#include "transport/testing/requester_peer.h"
#include "transport/testing/wire_peer.h"
#include "wire/aeth.h"

namespace transport {
namespace {

using enum wire::Operation;

// --- Modify.

TEST(ModifyTest, ThroughTheStates) {
  WirePeer peer;
  EXPECT_EQ(peer.qp->state(), QpState::kReset);
  EXPECT_EQ(peer.Modify(QpState::kRtr), EINVAL);
  peer.Connect();
  EXPECT_EQ(peer.qp->state(), QpState::kRts);
  EXPECT_EQ(peer.Modify(QpState::kSqd), 0);
  EXPECT_EQ(peer.Modify(QpState::kRts), 0);
  EXPECT_EQ(peer.Modify(QpState::kErr), 0);
  EXPECT_EQ(peer.Modify(QpState::kErr), 0);
  EXPECT_EQ(peer.Modify(QpState::kRts), EINVAL);
  EXPECT_EQ(peer.Modify(QpState::kReset), 0);
  EXPECT_EQ(peer.qp->attributes().dest_qpn, 0u);
  peer.Connect();
  EXPECT_EQ(peer.TakeEvents(), "");
}

TEST(ModifyTest, BadValuesChangeNothing) {
  using Change = std::function<void(QpAttributes&)>;
  struct Case {
    QpState to;
    Change change;
  };
  const Case cases[] = {
      {QpState::kInit, [](QpAttributes& a) { a.pkey_index = 1; }},
      {QpState::kInit, [](QpAttributes& a) { a.port_num = 0; }},
      {QpState::kInit, [](QpAttributes& a) { a.port_num = 2; }},
      {QpState::kRtr, [](QpAttributes& a) { a.path_mtu = 0; }},
      {QpState::kRtr, [](QpAttributes& a) { a.path_mtu = 128; }},
      {QpState::kRtr, [](QpAttributes& a) { a.path_mtu = 1500; }},
      {QpState::kRtr, [](QpAttributes& a) { a.path_mtu = 8192; }},
      {QpState::kRtr, [](QpAttributes& a) { a.dest_qpn = 1 << 24; }},
      {QpState::kRtr, [](QpAttributes& a) { a.min_rnr_timer = 32; }},
      {QpState::kRtr, [](QpAttributes& a) { a.av.source = {}; }},
      {QpState::kRtr, [](QpAttributes& a) { a.av.destination = {}; }},
      {QpState::kRtr,
       [](QpAttributes& a) { a.av.destination = wire::IpAddress::FromV4(0); }},
      {QpState::kRtr,
       [](QpAttributes& a) {
         a.av.destination = *wire::IpAddress::Parse("224.0.0.9");
       }},
      {QpState::kRtr,
       [](QpAttributes& a) {
         a.av.destination = *wire::IpAddress::Parse("2001:db8::1");
       }},
      {QpState::kRts, [](QpAttributes& a) { a.timeout = 32; }},
      {QpState::kRts, [](QpAttributes& a) { a.retry_cnt = 8; }},
      {QpState::kRts, [](QpAttributes& a) { a.rnr_retry = 8; }},
  };
  for (const Case& c : cases) {
    WirePeer peer;
    for (QpState state : {QpState::kInit, QpState::kRtr, QpState::kRts}) {
      if (state != c.to) {
        ASSERT_EQ(peer.Modify(state), 0);
        continue;
      }
      const QpAttributes good = peer.attributes;
      c.change(peer.attributes);
      const QpState before = peer.qp->state();
      EXPECT_EQ(peer.Modify(state), EINVAL) << &c - cases;
      EXPECT_EQ(peer.qp->state(), before);
      EXPECT_EQ(peer.qp->attributes().dest_qpn,
                before == QpState::kRtr ? WirePeer::kPeerQpn : 0);
      peer.attributes = good;
      EXPECT_EQ(peer.Modify(state), 0);
      break;
    }
  }
}

TEST(ModifyTest, PsnsAreCutTo24Bits) {
  WirePeer peer;
  peer.attributes.rq_psn = 0xab000005;
  peer.attributes.sq_psn = 0xff000006;
  peer.Connect();
  EXPECT_EQ(peer.qp->attributes().rq_psn, 5u);
  EXPECT_EQ(peer.qp->attributes().sq_psn, 6u);
}

TEST(ModifyTest, CurrentStateMustBeTrue) {
  WirePeer peer;
  peer.Connect();
  QpAttributes attributes;
  attributes.state = QpState::kRts;
  attributes.current_state = QpState::kSqd;
  EXPECT_EQ(peer.qp->Modify(attributes, kQpState | kQpCurState, 0), EINVAL);
  attributes.current_state = QpState::kRts;
  EXPECT_EQ(peer.qp->Modify(attributes, kQpState | kQpCurState, 0), 0);
  EXPECT_EQ(peer.qp->Modify(attributes, kQpCurState, 0), 0);
}

TEST(ModifyTest, AttributesWithinAState) {
  WirePeer peer;
  peer.Connect();
  QpAttributes attributes;
  attributes.min_rnr_timer = 3;
  EXPECT_EQ(peer.qp->Modify(attributes, kQpMinRnrTimer, 0), 0);
  EXPECT_EQ(peer.qp->attributes().min_rnr_timer, 3);
  EXPECT_EQ(peer.qp->attributes().retry_cnt, 7);
  attributes.timeout = 3;
  EXPECT_EQ(peer.qp->Modify(attributes, kQpTimeout, 0), EINVAL);  // only in SQD
  peer.Modify(QpState::kSqd);
  EXPECT_EQ(peer.qp->Modify(attributes, kQpTimeout, 0), 0);
  EXPECT_EQ(peer.qp->attributes().timeout, 3);
  attributes.alt_port_num = 1;
  EXPECT_EQ(peer.qp->Modify(attributes, kQpAltPath, 0), EINVAL);  // no address
  attributes.alt_av = std::make_shared<AddressVector>();
  EXPECT_EQ(peer.qp->Modify(attributes, kQpAltPath, 0), 0);
  EXPECT_EQ(peer.qp->attributes().alt_av, attributes.alt_av);
  attributes.alt_port_num = 2;
  EXPECT_EQ(peer.qp->Modify(attributes, kQpAltPath, 0), EINVAL);
}

TEST(ModifyTest, AnotherPeerWhileDrained) {
  WirePeer peer;
  peer.Connect();
  peer.Modify(QpState::kSqd);
  QpAttributes attributes = peer.attributes;
  attributes.av.destination = *wire::IpAddress::Parse("10.0.0.3");
  ASSERT_EQ(peer.qp->Modify(attributes, kQpAv, 0), 0);
  peer.Deliver(peer.Write(kWriteOnly, 100, 0, 0, true));
  EXPECT_EQ(peer.qp->counters().dropped_source, 1u);
  peer.datagram.source = attributes.av.destination;
  peer.Deliver(peer.Write(kWriteOnly, 100, 0, 0, true));
  EXPECT_EQ(peer.Transmit(), "ACK 100 msn 1");
}

// --- Posting.

TEST(PostTest, ByState) {
  WirePeer peer;
  const SendRequest send;
  EXPECT_EQ(peer.PostReceive(1, {8}), EINVAL);
  EXPECT_EQ(peer.qp->PostSend(send, 0), EINVAL);
  peer.Connect(QpState::kInit);
  EXPECT_EQ(peer.PostReceive(1, {8}), 0);
  EXPECT_EQ(peer.qp->PostSend(send, 0), EINVAL);
  peer.Connect(QpState::kInit);
  peer.Modify(QpState::kRtr);
  EXPECT_EQ(peer.PostReceive(2, {8}), 0);
  EXPECT_EQ(peer.qp->PostSend(send, 0), EINVAL);
  peer.Modify(QpState::kRts);
  EXPECT_EQ(peer.PostReceive(3, {8}), 0);
  peer.Modify(QpState::kErr);
  EXPECT_EQ(peer.TakeReceives(), "1 status 5; 2 status 5; 3 status 5");
  EXPECT_EQ(peer.PostReceive(4, {8}), 0);
  EXPECT_EQ(peer.TakeReceives(), "4 status 5");
}

TEST(PostTest, ReceiveLimits) {
  WirePeer peer;
  peer.Connect();
  EXPECT_EQ(peer.PostReceive(1, {1, 1, 1, 1, 1}), EINVAL);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(peer.PostReceive(i, {8}), 0);
  EXPECT_EQ(peer.PostReceive(16, {8}), ENOMEM);
  peer.Deliver(peer.Request(kSendOnly, 100), 1);
  EXPECT_EQ(peer.PostReceive(16, {8}), 0);
}

TEST(ReceiveQueueTest, RingOrder) {
  ReceiveQueue queue(5, 3, 2);
  ReceiveWqe wqe;
  EXPECT_FALSE(queue.Pop(&wqe));
  uint64_t in = 0;
  uint64_t out = 0;
  for (int round = 0; round < 10; ++round) {
    while (true) {
      const Sge sges[] = {{in, 1, 2}, {in + 1, 3, 4}};
      const int error = queue.Post({in, {sges, 1 + in % 2}});
      if (error != 0) {
        EXPECT_EQ(error, ENOMEM);
        break;
      }
      ++in;
    }
    EXPECT_EQ(queue.size(), 3u);
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(queue.Pop(&wqe));
      queue.outstanding().Report(queue.taken());
      if (i == 0) {
        EXPECT_EQ(queue.Post({in, {}}), ENOMEM);  // outstanding
      }
      queue.TakenSlot().Free();
      EXPECT_EQ(wqe.wr_id, out);
      EXPECT_EQ(wqe.pd, 5u);
      EXPECT_EQ(wqe.sges.size(), 1 + out % 2);
      EXPECT_EQ(wqe.sges[0].addr, out);
      if (out % 2 != 0) {
        EXPECT_EQ(wqe.sges[1].addr, out + 1);
      }
      ++out;
    }
  }
  queue.Clear();
  EXPECT_FALSE(queue.Pop(&wqe));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(queue.Post({in, {}}), 0);
  ASSERT_TRUE(queue.Pop(&wqe));
  queue.outstanding().Report(queue.taken());
  EXPECT_EQ(queue.Post({in, {}}), 0);
  EXPECT_EQ(queue.Post({in, {}}), ENOMEM);
}

TEST(ReceiveQueueTest, CapacityZero) {
  ReceiveQueue queue(5, 0, 0);
  EXPECT_EQ(queue.Post({1, {}}), ENOMEM);
}

// --- Admission.

TEST(AdmitTest, States) {
  WirePeer peer;
  const auto deliver = [&] {
    return peer.Deliver(peer.Write(kWriteOnly, 100, 0, 0, true));
  };
  deliver();  // RESET
  peer.Modify(QpState::kInit);
  deliver();
  EXPECT_EQ(peer.qp->counters().dropped_state, 2u);
  EXPECT_EQ(peer.qp->counters().rx_packets, 0u);
  EXPECT_EQ(peer.TakeEvents(), "");
  peer.Modify(QpState::kRtr);
  deliver();
  EXPECT_EQ(peer.Transmit(), "ACK 100 msn 1");
  EXPECT_EQ(peer.TakeEvents(), "4");  // communication established: raised once
  deliver();
  EXPECT_EQ(peer.Transmit(), "ACK 100 msn 1");
  EXPECT_EQ(peer.TakeEvents(), "");
  // Before anything was sent, no response can be valid.
  peer.Deliver(peer.Request(kAcknowledge, 5000));
  EXPECT_EQ(peer.qp->counters().dropped_state, 3u);
  peer.Modify(QpState::kErr);
  deliver();
  EXPECT_EQ(peer.qp->counters().dropped_state, 4u);
  EXPECT_EQ(peer.Transmit(), "");
}

TEST(AdmitTest, InRtsNoEventIsRaised) {
  WirePeer peer;
  peer.Connect();
  peer.Deliver(peer.Write(kWriteOnly, 100, 0, 0, true));
  EXPECT_EQ(peer.TakeEvents(), "");
}

TEST(AdmitTest, AnotherSource) {
  WirePeer peer;
  peer.Connect(QpState::kRtr);
  const wire::IpAddress right = peer.datagram.source;
  peer.datagram.source = *wire::IpAddress::Parse("10.0.0.66");
  // Dropped without any effect, even an error.
  EXPECT_EQ(peer.Deliver(peer.Write(kWriteOnly, 100, 0, 4, true), 4),
            Disposition::kDelivered);
  peer.Deliver(peer.Request(kSendLast, 100), 4);
  peer.Deliver(peer.Read(104, 0, 1));
  EXPECT_EQ(peer.qp->counters().dropped_source, 3u);
  EXPECT_EQ(peer.Transmit(), "");
  EXPECT_EQ(peer.TakeEvents(), "");
  EXPECT_EQ(peer.target->bytes[0], 0);
  peer.datagram.source = right;
  peer.datagram.destination = *wire::IpAddress::Parse("10.0.0.67");
  peer.Deliver(peer.Write(kWriteOnly, 100, 0, 4, true), 4);
  EXPECT_EQ(peer.qp->counters().dropped_source, 4u);
  EXPECT_EQ(peer.qp->state(), QpState::kRtr);
}

TEST(AdmitTest, AnotherTransport) {
  WirePeer peer;
  peer.Connect();
  for (wire::Transport transport :
       {wire::Transport::kUc, wire::Transport::kUd, wire::Transport::kXrc}) {
    wire::Headers headers = peer.Request(kSendOnly, 100, true);
    headers.bth.opcode = wire::MakeOpcode(transport, kSendOnly);
    peer.Deliver(headers);
  }
  EXPECT_EQ(peer.qp->counters().dropped_type, 3u);
  EXPECT_EQ(peer.qp->state(), QpState::kRts);
  EXPECT_EQ(peer.Transmit(), "");
}

TEST(AdmitTest, PartitionKey) {
  WirePeer peer;
  peer.Connect();
  wire::Headers headers = peer.Write(kWriteOnly, 100, 0, 0, true);
  for (uint16_t pkey : {0x8001, 0x0000, 0xfffe, 0x7ffe}) {
    headers.bth.pkey = pkey;
    peer.Deliver(headers);
  }
  EXPECT_EQ(peer.qp->counters().dropped_pkey, 4u);
  EXPECT_EQ(peer.Transmit(), "");
  headers.bth.pkey = 0x7fff;  // limited member
  peer.Deliver(headers);
  EXPECT_EQ(peer.Transmit(), "ACK 100 msn 1");
}

TEST(AdmitTest, MigReqOfEitherValue) {
  WirePeer peer;
  peer.Connect();
  wire::Headers headers = peer.Write(kWriteOnly, 100, 0, 0, true);
  headers.bth.mig_req = false;
  peer.Deliver(headers);
  EXPECT_EQ(peer.Transmit(), "ACK 100 msn 1");
}

// --- Congestion notification.

TEST(CnpTest, MarkedDataIsAnswered) {
  WirePeer peer;
  peer.Connect();
  peer.datagram.traffic_class = 3;
  peer.Deliver(peer.Write(kWriteOnly, 100, 0, 4, true), 4);
  EXPECT_EQ(peer.Transmit(), "CNP; ACK 100 msn 1");
  // At most one per 50 us.
  peer.now += 49 * kMicrosecond;
  peer.Deliver(peer.Write(kWriteOnly, 101, 0, 4, true), 4);
  EXPECT_EQ(peer.Transmit(), "ACK 101 msn 2");
  peer.now += kMicrosecond;
  peer.Deliver(peer.Write(kWriteOnly, 102, 0, 4), 4);
  EXPECT_EQ(peer.Transmit(), "CNP");
  EXPECT_EQ(peer.qp->counters().cnps_sent, 2u);
}

// IBA vol. 1, A17.4: congestion is marked in the IP header; FECN and BECN are
// ignored.
TEST(CnpTest, FecnAndBecnAreIgnored) {
  WirePeer peer;
  peer.Connect();
  wire::Headers headers = peer.Write(kWriteOnly, 100, 0, 4, true);
  headers.bth.fecn = headers.bth.becn = true;
  peer.Deliver(headers, 4);
  EXPECT_EQ(peer.Transmit(), "ACK 100 msn 1");
  EXPECT_EQ(peer.qp->counters().ecn_marked, 0u);
  EXPECT_EQ(peer.qp->counters().cnps_received, 0u);
}

// A17.9.3: the CNP carries the P_Key of the marked packet.
TEST(CnpTest, HasThePartitionKeyOfTheMarkedPacket) {
  WirePeer peer;
  peer.Connect();
  peer.datagram.traffic_class = 3;
  wire::Headers headers = peer.Write(kWriteOnly, 100, 0, 4, true);
  headers.bth.pkey = 0x7fff;
  peer.Deliver(headers, 4);
  // The next packet is marked too, but the CNP is already due.
  peer.Deliver(peer.Write(kWriteOnly, 101, 0, 4, true), 4);
  EXPECT_EQ(peer.Transmit(), "CNP pkey 7fff; ACK 101 msn 2");
  peer.now += kMillisecond;
  peer.Deliver(peer.Write(kWriteOnly, 102, 0, 4), 4);
  EXPECT_EQ(peer.Transmit(), "CNP");
  // Without a marked packet: the CNP has the default P_Key.
  peer.now += kMillisecond;
  peer.datagram.traffic_class = 0;
  headers.bth.psn = 103;
  headers.bth.ack_req = false;
  peer.Deliver(headers, 4);
  peer.endpoint.OnReceiveOverflow(peer.now);
  EXPECT_EQ(peer.Transmit(), "CNP");
}

// CA17-44 covers all request types.
TEST(CnpTest, MarkedRequestsOfEveryKindAreAnswered) {
  WirePeer peer;
  peer.attributes.access_flags |= kAccessFlushGlobal;
  peer.target->access |= kAccessFlushGlobal;
  peer.Connect();
  peer.PostReceive(7, {8});
  peer.datagram.traffic_class = 3;
  const auto expect = [&](const wire::Headers& headers,
                          const std::string& answer) {
    peer.Deliver(headers);
    EXPECT_EQ(peer.Transmit(), answer);
    peer.now += kMillisecond;
  };
  expect(peer.Read(100, 0, 0), "CNP; READ_ONLY 100 msn 1 [0]");
  expect(peer.Atomic(kFetchAdd, 101, 0, 1), "CNP; ATOMIC 101 msn 2 = 0");
  expect(peer.Write(kWriteOnly, 102, 0, 0, true), "CNP; ACK 102 msn 3");
  expect(peer.Request(kSendOnly, 103, true), "CNP; ACK 103 msn 4");
  wire::Headers flush = peer.Write(kFlush, 104, 0, 8);
  flush.feth = {1, 0};
  expect(flush, "CNP; READ_ONLY 104 msn 5 [0]");
  EXPECT_EQ(peer.qp->counters().ecn_marked, 5u);
}

// Reason: docs/reliability.md, "Congestion".
TEST(CnpTest, NotForResponsesWithoutData) {
  RequesterPeer peer;
  peer.Connect();
  peer.traffic_class = 3;
  peer.Send(1, 1);
  peer.FetchAdd(2, 1);
  peer.Transmit();
  const uint64_t window = peer.path().window();
  peer.Ack(100);
  peer.AtomicAck(101, 5);
  EXPECT_EQ(peer.Completions(), "1 ok; 2 ok 8");
  EXPECT_EQ(peer.Transmit(), "");
  EXPECT_EQ(peer.qp->counters().ecn_marked, 0u);
  EXPECT_GE(peer.path().window(), window);
}

TEST(CnpTest, ReceivedOnesAreCounted) {
  WirePeer peer;
  peer.Connect();
  wire::Headers headers;
  headers.bth.opcode = wire::kOpcodeCnp;
  headers.bth.dest_qpn = WirePeer::kQpn;
  headers.bth.becn = true;
  EXPECT_EQ(peer.Deliver(headers, wire::kCnpPayloadSize),
            Disposition::kDelivered);
  EXPECT_EQ(peer.qp->counters().cnps_received, 1u);
  EXPECT_EQ(peer.Transmit(), "");
}

TEST(CnpTest, ReceiveOverflowNotifiesRecentSenders) {
  WirePeer peer;
  peer.Connect();
  peer.endpoint.OnReceiveOverflow(peer.now);
  EXPECT_EQ(peer.Transmit(), "");
  peer.Deliver(peer.Write(kWriteOnly, 100, 0, 4), 4);
  peer.now += kMillisecond;
  peer.endpoint.OnReceiveOverflow(peer.now);
  EXPECT_EQ(peer.Transmit(), "CNP");
  peer.now += kMillisecond;
  peer.endpoint.OnReceiveOverflow(peer.now);
  EXPECT_EQ(peer.Transmit(), "");
}

// --- Requester and responder in one burst.

class HalvesTest : public ::testing::Test {
 protected:
  HalvesTest() { peer.Connect(); }
  void PostWrite(uint32_t bytes) { Post(SendOpcode::kRdmaWrite, bytes); }
  void PostSend(uint32_t bytes) { Post(SendOpcode::kSend, bytes); }
  void Post(SendOpcode opcode, uint32_t bytes) {
    const Sge sge = {peer.target->va, bytes, peer.target->lkey};
    SendRequest request;
    request.opcode = opcode;
    request.sges = {&sge, 1};
    request.rkey = 1;
    ASSERT_EQ(peer.qp->PostSend(request, peer.now), 0);
  }
  WirePeer peer;
};

TEST_F(HalvesTest, AckEndsABurstOfData) {
  peer.Deliver(peer.Write(kWriteOnly, 100, 0, 0, true));
  PostWrite(64);
  EXPECT_EQ(peer.Transmit(), "RC_RDMA_WRITE_ONLY 5000 [64]; ACK 100 msn 1");
}

// A program that answers a message expects its peer to see first that the
// message has arrived. So the ACK leaves in the burst of the answer's first
// packets, or before.
TEST_F(HalvesTest, AckLeavesWithTheFirstPacketsOfAReply) {
  auto deliver = [this, psn = 100u]() mutable {
    peer.Deliver(peer.Write(kWriteOnly, psn++, 0, 0, true));
  };
  deliver();
  PostSend(16 * WirePeer::kMtu);  // fills a burst
  std::string sent = peer.Transmit();
  EXPECT_NE(sent.find("RC_SEND_MIDDLE 5014 [256]; ACK 100 msn 1 | "),
            std::string::npos)
      << sent;
  deliver();
  PostSend(WirePeer::kMtu + 100);  // the last packet is shorter
  EXPECT_EQ(peer.Transmit(),
            "RC_SEND_FIRST 5016 [256]; ACK 101 msn 2 | "
            "RC_SEND_LAST 5017 [100]");
  deliver();
  PostSend(0);  // shorter than an ACK
  EXPECT_EQ(peer.Transmit(), "ACK 102 msn 3 | RC_SEND_ONLY 5018 [0]");
  // Without a due ACK, no space is kept.
  PostSend(WirePeer::kMtu + 100);
  EXPECT_EQ(peer.Transmit(),
            "RC_SEND_FIRST 5019 [256]; RC_SEND_LAST 5020 [100]");
}

// The peer's program may use replies as credits, so a reply acknowledges
// messages without AckReq as well.
TEST_F(HalvesTest, AReplyAcknowledgesPacketsWithoutAckReq) {
  for (uint32_t psn = 100; psn < 103; ++psn) {
    peer.Deliver(peer.Write(kWriteOnly, psn, 0, 0));
  }
  EXPECT_EQ(peer.Transmit(), "");
  PostSend(64);
  EXPECT_EQ(peer.Transmit(), "RC_SEND_ONLY 5000 [64]; ACK 102 msn 3");
  PostSend(64);
  EXPECT_EQ(peer.Transmit(), "RC_SEND_ONLY 5001 [64]");
  // A message that has not ended cannot have been answered.
  peer.Deliver(peer.Write(kWriteFirst, 103, 0, 2 * WirePeer::kMtu),
               WirePeer::kMtu);
  PostSend(64);
  EXPECT_EQ(peer.Transmit(), "RC_SEND_ONLY 5002 [64]");
}

TEST(LonePacketsTest, AckGoesBeforeAReply) {
  WirePeer peer({.max_segments = 1});
  peer.Connect();
  peer.Deliver(peer.Write(kWriteOnly, 100, 0, 0, true));
  const Sge sge = {peer.target->va, 64, peer.target->lkey};
  SendRequest request;
  request.opcode = SendOpcode::kSend;
  request.sges = {&sge, 1};
  ASSERT_EQ(peer.qp->PostSend(request, peer.now), 0);
  EXPECT_EQ(peer.Transmit(), "ACK 100 msn 1 | RC_SEND_ONLY 5000 [64]");
}

TEST_F(HalvesTest, AckWaitsForOneBurstAtMost) {
  PostWrite(60000);
  for (uint32_t psn = 100; psn < 108; ++psn) {
    peer.Deliver(peer.Write(kWriteOnly, psn, 0, 0, true));
    const std::string ack = "ACK " + std::to_string(psn);
    if (peer.TransmitOne().find(ack) != std::string::npos) continue;
    EXPECT_EQ(peer.TransmitOne().find(ack), 0u);
  }
}

TEST_F(HalvesTest, NeitherStarves) {
  PostWrite(60000);
  peer.Deliver(peer.Read(100, 0, 60000));
  int requests = 0;
  int responses = 0;
  for (int i = 0; i < 12; ++i) {
    const std::string burst = peer.TransmitOne();
    requests += burst.find("RC_RDMA_WRITE") != std::string::npos;
    responses += burst.find("READ_") != std::string::npos;
  }
  EXPECT_GE(requests, 5);
  EXPECT_GE(responses, 5);
}

// --- Errors.

TEST_F(HalvesTest, PostedInTheErrorState) {
  PostWrite(64);
  peer.Modify(QpState::kErr);
  PostWrite(64);
  ASSERT_EQ(peer.send_cq.completions.size(), 2u);
  for (const Completion& completion : peer.send_cq.completions) {
    EXPECT_EQ(completion.status, WcStatus::kFlushed);
  }
  EXPECT_EQ(peer.Transmit(), "");
}

TEST_F(HalvesTest, HeldWhileDrained) {
  PostWrite(64);
  EXPECT_EQ(peer.Transmit(), "RC_RDMA_WRITE_ONLY 5000 [64]");
  peer.attributes.en_sqd_async_notify = true;
  peer.attributes.state = QpState::kSqd;
  ASSERT_EQ(peer.qp->Modify(peer.attributes, kQpState | kQpEnSqdAsyncNotify,
                            peer.now),
            0);
  EXPECT_TRUE(peer.qp->attributes().sq_draining);
  EXPECT_EQ(peer.qp->Modify(peer.attributes, kQpTimeout, peer.now), EINVAL);
  PostWrite(64);
  EXPECT_EQ(peer.Transmit(), "");
  wire::Headers ack = peer.Request(kAcknowledge, 5000);
  ack.aeth = {wire::MakeAckSyndrome(wire::kCreditNone), 1};
  peer.Deliver(ack);
  EXPECT_EQ(peer.TakeEvents(), "5");
  EXPECT_FALSE(peer.qp->attributes().sq_draining);
  EXPECT_EQ(peer.qp->Modify(peer.attributes, kQpTimeout, peer.now), 0);
  EXPECT_EQ(peer.Transmit(), "");
  peer.Modify(QpState::kRts);
  EXPECT_EQ(peer.Transmit(), "RC_RDMA_WRITE_ONLY 5001 [64]");
}

TEST(ErrorTest, CqError) {
  WirePeer peer;
  peer.Connect();
  peer.PostReceive(1, {8});
  peer.qp->OnCqError(peer.now);
  EXPECT_EQ(peer.qp->state(), QpState::kErr);
  EXPECT_EQ(peer.TakeEvents(), "1");
  EXPECT_EQ(peer.TakeReceives(), "1 status 5");
  peer.qp->OnCqError(peer.now);
  EXPECT_EQ(peer.TakeEvents(), "");
}

}  // namespace
}  // namespace transport
