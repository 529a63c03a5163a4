// Initiators and targets against each other: what they send.
#include "wire/dc.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "transport/endpoint/packet_observer.h"
#include "transport/testing/dc_fixture.h"
#include "transport/testing/dc_hosts.h"
#include "wire/aeth.h"
#include "wire/psn.h"

namespace transport {
namespace {

// Logs the packets of an endpoint, in order.
struct PacketLog final : PacketObserver {
  void OnPacket(const ObservedPacket& packet) override {
    wire::PacketView view;
    ASSERT_EQ(wire::PacketView::Parse(packet.bytes, &view),
              wire::ParseError::kOk);
    names.emplace_back(view.info().name);
    qpns.push_back(packet.qpn);
  }
  std::vector<std::string> names;
  std::vector<uint32_t> qpns;
};

TEST_F(DcTest, TheFirstMessageConnects) {
  ASSERT_EQ(Send(1), 0);
  EXPECT_EQ(net.Exchange(),
            "DC_CONNECT DC_CONNECT_ANSWER DC_SEND_ONLY DC_ACKNOWLEDGE");
  EXPECT_EQ(Take(from.send_cq), "1 0");
  const std::vector<Completion> received = to.recv_cq.Take();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].status, WcStatus::kSuccess);
  EXPECT_EQ(received[0].qpn, kDct) << "not the connection's number";
  EXPECT_EQ(received[0].byte_len, 16u);
  EXPECT_TRUE(std::equal(from.region->bytes.begin(),
                         from.region->bytes.begin() + 16,
                         to.region->bytes.begin() + 0x80000));
  // The CONNECT uses a PSN; the message follows it, to the connection.
  const wire::PacketView connect = net.sent[0].view();
  const wire::PacketView message = net.sent[2].view();
  EXPECT_EQ(connect.bth().dest_qpn, wire::kNoDcQpn);
  EXPECT_EQ(message.bth().psn, wire::PsnAdd(connect.bth().psn, 1));
  EXPECT_EQ(message.bth().dest_qpn, net.sent[1].view().dceth().src_qpn);
  EXPECT_TRUE(message.bth().ack_req);
  EXPECT_EQ(net.sent[3].view().aeth(), (wire::Aeth{.syndrome = 0x1f}));
  EXPECT_EQ(net.sent[3].source_port, net.sent[0].source_port);

  ASSERT_EQ(Send(2), 0);
  EXPECT_EQ(net.Exchange(), "DC_SEND_ONLY DC_ACKNOWLEDGE");
  EXPECT_EQ(counters().dc_connects, 1u);
  EXPECT_EQ(to.connections.size(), 1u);
}

// Each host has an initiator and a target. Requests, and the ACK of what the
// peer sent before, leave in one burst and arrive as a ping-pong program
// expects: its own completion first.
TEST_F(DcTest, TheAckLeavesWithTheAnswer) {
  from.next_number = 0x101;  // with its initiator's in one slot
  const auto back = to.MakeDci(kDci, net.now);
  const auto front = from.MakeDct(kDct, net.now);
  AddressVector av = to.AddressOf(from);
  const auto answer = [&](uint64_t wr_id, uint16_t port) {
    from.PostReceive(wr_id, 0x80000);
    Sge sge = {to.region->va, 64, to.region->lkey};
    av.source_port = port;
    SendRequest request = Request(SendOpcode::kSend, wr_id, 64);
    request.sges = {&sge, 1};
    request.ah = &av;
    return back->PostSend(request, net.now);
  };
  ASSERT_EQ(Send(1), 0);
  net.Exchange();
  ASSERT_EQ(answer(2, 0xc005), 0);
  net.Exchange();
  Take(from.send_cq);
  Take(from.recv_cq);

  ASSERT_EQ(Send(3), 0);
  for (const DcDatagram& ping : net.Transmit(from)) net.Deliver(ping);
  ASSERT_EQ(answer(4, 0xc005), 0);
  // From here on by hand: net.Transmit does not say which packets share a
  // burst.
  std::vector<uint8_t> buffer(65507);
  OneBurst sink(buffer, 64);
  PacketLog log;
  std::map<uint32_t, uint64_t> before;
  for (const uint32_t qpn : to.endpoint.QueuePairNumbers()) {
    before[qpn] = to.endpoint.Find(qpn)->Report().counters.tx_packets;
  }
  to.endpoint.Observe(&log);
  Burst* const burst = to.endpoint.PollTransmit(net.now, &sink);
  to.endpoint.Observe(nullptr);
  ASSERT_NE(burst, nullptr);
  ASSERT_EQ(burst->segments(), 2);
  EXPECT_FALSE(to.endpoint.HasTransmit());
  ASSERT_EQ(log.qpns.size(), 2u);
  EXPECT_EQ(log.qpns[0], kDci);
  EXPECT_EQ(log.qpns[1], to.next_number - 1) << "the connection's";
  for (const uint32_t qpn : log.qpns) {
    EXPECT_EQ(to.endpoint.Find(qpn)->Report().counters.tx_packets,
              before[qpn] + 1);
  }
  GroBatch batch;
  batch.bytes = burst->bytes();
  batch.segment_size = burst->segment_size();
  batch.source = to.address;
  batch.destination = from.address;
  batch.source_port = 0xc005;
  batch.hop_limit = 64;
  log = {};
  from.endpoint.Observe(&log);
  from.endpoint.OnGroBatch(batch, net.now, nullptr);
  from.endpoint.Observe(nullptr);
  EXPECT_EQ(log.names,
            (std::vector<std::string>{"DC_ACKNOWLEDGE", "DC_SEND_ONLY"}));
  EXPECT_EQ(Take(from.send_cq), "3 0");
  EXPECT_EQ(Take(from.recv_cq), "4 0");
  net.Exchange();

  // Another port is another flow: the ACK leaves alone, and first.
  ASSERT_EQ(Send(5), 0);
  for (const DcDatagram& ping : net.Transmit(from)) net.Deliver(ping);
  ASSERT_EQ(answer(6, 0xc006), 0);
  Burst* const alone = to.endpoint.PollTransmit(net.now, &sink);
  ASSERT_NE(alone, nullptr);
  EXPECT_EQ(alone->segments(), 1);
  EXPECT_EQ(alone->flow()->av.source_port, 0xc005);
}

TEST_F(DcTest, EveryOperation) {
  to.PostReceive(100, 0x80000);
  to.PostReceive(101, 0x81000);
  to.PostReceive(102, 0x82000);
  ASSERT_EQ(Post(SendOpcode::kRdmaWrite, 1, 5000, 1000), 0);
  SendRequest imm = Request(SendOpcode::kRdmaWriteWithImm, 2, 600, 8000);
  imm.imm_be = 0x01020304;
  ASSERT_EQ(dci->PostSend(imm, net.now), 0);
  imm = Request(SendOpcode::kSendWithImm, 3, 1000);
  imm.imm_be = 0x05060708;
  ASSERT_EQ(dci->PostSend(imm, net.now), 0);
  FakeMemory::Region& window = to.memory.Add(0x900000, 64, DcHost::kPd, 0);
  SendRequest invalidate = Request(SendOpcode::kSendWithInvalidate, 4, 300);
  invalidate.invalidate_rkey = window.rkey;
  ASSERT_EQ(dci->PostSend(invalidate, net.now), 0);
  for (int i = 0; i < 3000; ++i) {
    to.region->bytes[20000 + i] = static_cast<uint8_t>(i * 3);
  }
  ASSERT_EQ(Post(SendOpcode::kRdmaRead, 5, 3000, 20000), 0);
  const uint64_t before = 41;
  std::memcpy(&to.region->bytes[30000], &before, 8);
  SendRequest add = Request(SendOpcode::kFetchAdd, 6, 8, 30000);
  add.compare_add = 1;
  ASSERT_EQ(dci->PostSend(add, net.now), 0);
  SendRequest swap = Request(SendOpcode::kCompareSwap, 7, 8, 30000);
  swap.compare_add = 42;
  swap.swap = 77;
  ASSERT_EQ(dci->PostSend(swap, net.now), 0);
  net.Exchange();
  EXPECT_EQ(Take(from.send_cq), "1 0; 2 0; 3 0; 4 0; 5 0; 6 0; 7 0");
  EXPECT_TRUE(SameAt(1000, 5000));
  EXPECT_TRUE(SameAt(8000, 600));
  EXPECT_TRUE(SameAt(20000, 3000)) << "READ";
  const std::vector<Completion> received = to.recv_cq.Take();
  ASSERT_EQ(received.size(), 3u);
  EXPECT_EQ(received[0].imm_be_or_rkey, 0x01020304u);
  EXPECT_EQ(received[0].opcode, WcOpcode::kReceiveRdmaWithImm);
  EXPECT_EQ(received[1].imm_be_or_rkey, 0x05060708u);
  EXPECT_EQ(received[1].byte_len, 1000u);
  EXPECT_EQ(received[2].imm_be_or_rkey, window.rkey);
  EXPECT_FALSE(window.valid);
  uint64_t word;
  std::memcpy(&word, &to.region->bytes[30000], 8);
  EXPECT_EQ(word, 77u);
  std::memcpy(&word, &from.region->bytes[30000], 8);
  EXPECT_EQ(word, 42u);
  for (const DcDatagram& packet : net.sent) {
    EXPECT_EQ(packet.view().transport(), wire::Transport::kDc);
    EXPECT_EQ(packet.view().dceth().dct, kDct);
    if (packet.view().info().Has(wire::kAeth)) {
      EXPECT_EQ(packet.view().aeth().msn, 0u);
    }
  }
}

TEST_F(DcTest, AnotherTargetWaitsForEarlierRequests) {
  const auto second = to.MakeDct(kOtherDct, net.now);
  for (uint64_t i = 0; i < 3; ++i) to.PostReceive(i, 0x80000);
  ASSERT_EQ(Post(SendOpcode::kRdmaWrite, 1, 1000, 0), 0);
  ASSERT_EQ(Post(SendOpcode::kSend, 2, 16, 0), 0);
  ASSERT_EQ(Post(SendOpcode::kSend, 3, 16, 0, kOtherDct), 0);
  ASSERT_EQ(Post(SendOpcode::kSend, 4, 16, 0), 0);
  net.Exchange();
  EXPECT_EQ(Take(from.send_cq), "1 0; 2 0; 3 0; 4 0");
  EXPECT_EQ(Take(to.recv_cq), "0 0; 1 0; 2 0");
  EXPECT_EQ(counters().dc_connects, 3u);
  EXPECT_EQ(to.connections.size(), 1u) << "an initiator has one";
  // Nothing is outstanding when a CONNECT is sent, and PSNs continue.
  uint32_t expected = 0xfffff0;
  uint32_t acknowledged = expected;
  std::set<uint32_t> sessions;
  for (const DcDatagram& packet : net.sent) {
    const wire::PacketView view = packet.view();
    if (view.info().is_response) {
      acknowledged = wire::PsnAdd(view.bth().psn, 1);
      continue;
    }
    EXPECT_EQ(view.bth().psn, expected);
    if (view.opcode() == wire::kOpcodeDcConnect) {
      EXPECT_EQ(acknowledged, expected);
      EXPECT_TRUE(sessions.insert(view.dceth().initiator_session).second);
    }
    expected = wire::PsnAdd(expected, 1);
  }
  EXPECT_EQ(sessions.size(), 3u);
}

TEST_F(DcTest, AnotherHostOrKeyIsAnotherTarget) {
  DcHost& third = net[2];
  const auto there = third.MakeDct(kDct, net.now);
  third.PostReceive(9, 0x80000);
  ASSERT_EQ(Send(1), 0);
  SendRequest other = Request(SendOpcode::kSend, 2, 16);
  const AddressVector av = from.AddressOf(third);
  other.ah = &av;
  ASSERT_EQ(dci->PostSend(other, net.now), 0);
  ASSERT_EQ(Send(3), 0);
  net.Exchange();
  EXPECT_EQ(Take(from.send_cq), "1 0; 2 0; 3 0");
  EXPECT_EQ(Take(third.recv_cq), "9 0");
  EXPECT_EQ(counters().dc_connects, 2u);
  SendRequest keyless = Request(SendOpcode::kSend, 4, 16);
  keyless.dc_access_key = 1;
  ASSERT_EQ(dci->PostSend(keyless, net.now), 0);
  EXPECT_EQ(net.Exchange(), "DC_CONNECT");
  EXPECT_EQ(counters().dc_key_violations, 1u);
}

TEST_F(DcTest, LocalOperationsNeedNoTarget) {
  FakeMemory::Region& window = from.memory.Add(0x900000, 64, DcHost::kPd, 0);
  SendRequest local;
  local.wr_id = 1;
  local.opcode = SendOpcode::kLocalInvalidate;
  local.flags = kSendSignaled;
  local.invalidate_rkey = window.rkey;
  ASSERT_EQ(dci->PostSend(local, net.now), 0);
  EXPECT_EQ(net.Exchange(), "");
  EXPECT_EQ(Take(from.send_cq), "1 0");
  EXPECT_FALSE(window.valid);
  // Between requests to two targets it waits for its turn.
  const auto second = to.MakeDct(kOtherDct, net.now);
  window.valid = true;
  ASSERT_EQ(Send(2), 0);
  local.wr_id = 3;
  ASSERT_EQ(dci->PostSend(local, net.now), 0);
  ASSERT_EQ(Send(4, kOtherDct), 0);
  EXPECT_TRUE(window.valid);
  net.Exchange();
  EXPECT_FALSE(window.valid);
  EXPECT_EQ(Take(from.send_cq), "2 0; 3 0; 4 0");
}

TEST_F(DcTest, WhatCannotBePosted) {
  SendRequest request = Request(SendOpcode::kSend, 1, 16);
  EXPECT_EQ(dct->PostSend(request, net.now), EINVAL);
  EXPECT_EQ(dct->PostReceive({}, net.now), EINVAL);
  EXPECT_EQ(dci->PostReceive({}, net.now), EINVAL);
  request.ah = nullptr;
  EXPECT_EQ(dci->PostSend(request, net.now), EINVAL);
  AddressVector av = from.AddressOf(to);
  request.ah = &av;
  request.remote_qpn = 0x1000000;
  EXPECT_EQ(dci->PostSend(request, net.now), EINVAL);
  request.remote_qpn = kDct;
  av.destination = *wire::IpAddress::Parse("224.0.0.1");
  EXPECT_EQ(dci->PostSend(request, net.now), EINVAL);
  av.destination = *wire::IpAddress::Parse("fe80::1");
  EXPECT_EQ(dci->PostSend(request, net.now), EINVAL);
  av = from.AddressOf(to);
  for (const SendOpcode opcode :
       {SendOpcode::kFlush, SendOpcode::kAtomicWrite, SendOpcode::kTso}) {
    request.opcode = opcode;
    EXPECT_EQ(dci->PostSend(request, net.now), EINVAL);
  }
  QpAttributes rts;
  rts.state = QpState::kRts;
  EXPECT_EQ(dct->Modify(rts, kQpState, net.now), EINVAL);
  EXPECT_EQ(from.Make(QpType::kDct, 0x77)->config().type, QpType::kDct);
  QpConfig without_srq = from.Make(QpType::kDct, 0x77)->config();
  without_srq.srq = nullptr;
  EXPECT_EQ(MakeQueuePair(from.endpoint, without_srq, 0, {},
                          {.connections = &from.connections}),
            nullptr);
}

}  // namespace
}  // namespace transport
