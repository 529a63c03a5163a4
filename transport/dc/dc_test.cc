// Initiators and targets against each other: what they send, and what becomes
// of it.
#include "wire/dc.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "transport/dc/dci_queue_pair.h"
#include "transport/endpoint/packet_observer.h"
#include "transport/testing/bring_up.h"
#include "transport/testing/dc_hosts.h"
#include "wire/aeth.h"
#include "wire/bytes.h"
#include "wire/psn.h"

namespace transport {
namespace {

constexpr uint32_t kDci = 0x11;
constexpr uint32_t kDct = 0x22;
constexpr uint32_t kOtherDct = 0x23;

// The packets of an endpoint, in order.
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

class DcTest : public ::testing::Test {
 protected:
  DcTest() {
    for (size_t i = 0; i < from.region->bytes.size(); ++i) {
      from.region->bytes[i] = static_cast<uint8_t>(i * 7 + i / 256);
    }
    dci = from.MakeDci(kDci, net.now);
    dct = to.MakeDct(kDct, net.now);
  }

  // A request of `opcode` to `target` of `host`. Data at `offset` in both
  // regions.
  SendRequest Request(SendOpcode opcode, uint64_t wr_id, uint32_t bytes,
                      uint64_t offset = 0) {
    sge_ = {from.region->va + offset, bytes, from.region->lkey};
    av_ = from.AddressOf(to);
    SendRequest request;
    request.wr_id = wr_id;
    request.opcode = opcode;
    request.flags = kSendSignaled;
    request.sges = {&sge_, 1};
    request.remote_addr = to.region->va + offset;
    request.rkey = to.region->rkey;
    request.ah = &av_;
    request.remote_qpn = kDct;
    request.dc_access_key = DcHost::kKey;
    return request;
  }
  int Post(SendOpcode opcode, uint64_t wr_id, uint32_t bytes,
           uint64_t offset = 0, uint32_t target = kDct) {
    SendRequest request = Request(opcode, wr_id, bytes, offset);
    request.remote_qpn = target;
    return dci->PostSend(request, net.now);
  }
  int Send(uint64_t wr_id, uint32_t target = kDct) {
    to.PostReceive(wr_id, 0x80000);
    return Post(SendOpcode::kSend, wr_id, 16, 0, target);
  }
  void Restart() {
    QpAttributes reset;
    ASSERT_EQ(dci->Modify(reset, kQpState, net.now), 0);
    DcHost::BringUp(*dci, net.now);
  }
  // "wr_id status", joined by "; ".
  static std::string Take(RecordingCq& cq) {
    std::string text;
    for (const Completion& c : cq.Take()) {
      if (!text.empty()) text += "; ";
      text += std::to_string(c.wr_id) + " " +
              std::to_string(static_cast<int>(c.status));
    }
    return text;
  }
  const EndpointCounters& counters() { return to.endpoint.counters(); }
  bool SameAt(uint64_t offset, size_t bytes) {
    return std::equal(from.region->bytes.begin() + offset,
                      from.region->bytes.begin() + offset + bytes,
                      to.region->bytes.begin() + offset);
  }
  // A CONNECT that somebody else sends.
  DcDatagram Connect(uint32_t session, uint32_t initiator = kDci,
                     const char* source = "10.0.0.1", uint16_t port = 0xd000,
                     uint64_t key = DcHost::kKey) {
    DcDatagram connect;
    connect.bytes.resize(wire::kDcConnectSize);
    wire::EmitDcConnect({.dest_qpn = wire::kNoDcQpn, .ack_req = true, .psn = 5},
                        {.from_initiator = true,
                         .src_qpn = initiator,
                         .initiator_session = session,
                         .responder_session = wire::kNoDcSession,
                         .dct = kDct},
                        {.access_key = key}, connect.bytes.data());
    connect.source = *wire::IpAddress::Parse(source);
    connect.destination = to.address;
    connect.source_port = port;
    return connect;
  }

  DcHosts net{3};
  DcHost& from = net[0];
  DcHost& to = net[1];
  std::unique_ptr<QueuePair> dci;
  std::unique_ptr<QueuePair> dct;

 private:
  Sge sge_;
  AddressVector av_;
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
  // The CONNECT takes a PSN; the message follows it, to the connection.
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

// Each host has an initiator and a target. Requests and the ACK of what the
// peer sent before leave in one burst, and arrive as a ping-pong program
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
  // From here on by hand: net.Transmit does not say what is one burst.
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

TEST_F(DcTest, AnotherTargetWaitsForWhatIsBefore) {
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
  // Nothing is outstanding when a CONNECT goes out, and PSNs go on.
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
  // Between two targets it takes its turn.
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

TEST_F(DcTest, ALostConnectAndALostAnswerAreRepeated) {
  for (const std::string lost : {"DC_CONNECT", "DC_CONNECT_ANSWER"}) {
    Restart();
    int losses = 2;
    net.sent.clear();
    net.lose = [&](const DcDatagram& packet) {
      return packet.name() == lost && losses-- > 0;
    };
    const uint64_t connects = counters().dc_connects;
    ASSERT_EQ(Send(1), 0);
    net.Run(kSecond);
    EXPECT_EQ(Take(from.send_cq), "1 0") << lost;
    EXPECT_EQ(counters().dc_connects, connects + 1) << "a copy is no other";
    std::set<std::vector<uint8_t>> copies;
    std::set<std::vector<uint8_t>> answers;
    for (const DcDatagram& packet : net.sent) {
      if (packet.name() == "DC_CONNECT") copies.insert(packet.bytes);
      if (packet.name() == "DC_CONNECT_ANSWER") answers.insert(packet.bytes);
    }
    EXPECT_EQ(copies.size(), 1u) << "the same bytes";
    EXPECT_EQ(answers.size(), 1u);
    net.lose = nullptr;
  }
}

TEST_F(DcTest, LostDataAreSentAgain) {
  int count = 0;
  net.lose = [&](const DcDatagram& packet) {
    return packet.view().operation() != wire::Operation::kConnect &&
           ++count % 5 == 3;
  };
  ASSERT_EQ(Post(SendOpcode::kRdmaWrite, 1, 20000, 0), 0);
  ASSERT_EQ(Post(SendOpcode::kRdmaRead, 2, 20000, 40000), 0);
  ASSERT_EQ(Send(3), 0);
  net.Run(10 * kSecond);
  EXPECT_EQ(Take(from.send_cq), "1 0; 2 0; 3 0");
  EXPECT_TRUE(SameAt(0, 20000));
  EXPECT_EQ(Take(to.recv_cq), "3 0");
}

TEST_F(DcTest, NoAnswer) {
  for (const int retries : {0, 3}) {
    QpAttributes reset;
    ASSERT_EQ(dci->Modify(reset, kQpState, net.now), 0);
    DcHost::BringUp(*dci, net.now, static_cast<uint8_t>(retries));
    net.lose = [](const DcDatagram&) { return true; };
    const Time begin = net.now;
    ASSERT_EQ(Send(1), 0);
    ASSERT_EQ(Send(2), 0);
    net.Run(100 * kSecond);
    EXPECT_EQ(Take(from.send_cq), "1 12; 2 5");
    EXPECT_EQ(dci->state(), QpState::kErr);
    EXPECT_EQ(net.now - begin, (retries + 1) * wire::AckTimeoutNanos(14));
    EXPECT_EQ(from.endpoint.NextTimeout(), kNever);
  }
}

TEST_F(DcTest, AWrongKeyIsNotAnswered) {
  SendRequest request = Request(SendOpcode::kSend, 1, 16);
  request.dc_access_key ^= uint64_t{1} << 63;
  ASSERT_EQ(dci->PostSend(request, net.now), 0);
  const std::string names = net.Run(100 * kSecond);
  EXPECT_EQ(names.find("ANSWER"), std::string::npos);
  EXPECT_GT(counters().dc_key_violations, 1u);
  EXPECT_EQ(counters().dc_connects, 0u);
  EXPECT_EQ(Take(from.send_cq), "1 12");
}

TEST_F(DcTest, TargetsThatAreNone) {
  QpConfig config;
  config.qpn = 0x44;
  config.memory = &to.memory;
  config.send_cq = &to.send_cq;
  config.recv_cq = &to.recv_cq;
  const auto rc = MakeQueuePair(to.endpoint, config);
  const auto dci_there = to.MakeDci(0x45, net.now);
  auto gone = to.MakeDct(0x46, net.now);
  gone.reset();
  const auto in_reset = to.Make(QpType::kDct, 0x47, DcHost::kKey);
  for (const uint32_t target :
       {0x43u, 0x44u, 0x45u, 0x46u, 0x47u, 0u, 1u, 0xffffffu}) {
    Restart();
    ASSERT_EQ(Post(SendOpcode::kSend, 1, 16, 0, target), 0);
    const std::string names = net.Run(100 * kSecond);
    EXPECT_EQ(names.find("ANSWER"), std::string::npos) << target;
    EXPECT_EQ(Take(from.send_cq), "1 12") << target;
  }
}

TEST_F(DcTest, BadAccessEndsTheConnectionAlone) {
  const auto other = from.MakeDci(0x12, net.now);
  SendRequest good = Request(SendOpcode::kRdmaWrite, 10, 100, 500);
  ASSERT_EQ(other->PostSend(good, net.now), 0);
  net.Exchange();
  EXPECT_EQ(Take(from.send_cq), "10 0");

  SendRequest bad = Request(SendOpcode::kRdmaWrite, 1, 16);
  bad.rkey += 100;
  ASSERT_EQ(dci->PostSend(bad, net.now), 0);
  ASSERT_EQ(Send(2), 0);
  net.Exchange();
  EXPECT_EQ(Take(from.send_cq), "1 10; 2 5");
  EXPECT_EQ(to.events.Take(), std::vector<QpEvent>{QpEvent::kAccessError});
  EXPECT_EQ(dct->state(), QpState::kRtr);
  good.wr_id = 11;
  ASSERT_EQ(other->PostSend(good, net.now), 0);
  EXPECT_EQ(net.Exchange(), "DC_RDMA_WRITE_ONLY DC_ACKNOWLEDGE");
  EXPECT_EQ(Take(from.send_cq), "11 0");
  to.srq.queue.clear();
  Restart();
  ASSERT_EQ(Send(3), 0);
  net.Exchange();
  EXPECT_EQ(Take(from.send_cq), "3 0");
  EXPECT_EQ(Take(to.recv_cq), "3 0");
  EXPECT_EQ(to.connections.size(), 2u) << "the dead one is gone";
}

TEST_F(DcTest, WithoutReceive) {
  ASSERT_EQ(Post(SendOpcode::kSend, 1, 16), 0);
  net.Exchange();
  const wire::PacketView rnr = net.sent.back().view();
  EXPECT_EQ(rnr.aeth(), (wire::Aeth{.syndrome = 0x2c}));
  to.PostReceive(5, 0x80000);
  net.Run(kSecond);
  EXPECT_EQ(Take(from.send_cq), "1 0");
  EXPECT_EQ(Take(to.recv_cq), "5 0");
}

// A CONNECT that somebody else sends in the name of this initiator.
TEST_F(DcTest, ASecondConnectDoesNotEndTheFirst) {
  ASSERT_EQ(Send(1), 0);
  net.Exchange();
  net.Deliver(Connect(0x5555));
  EXPECT_EQ(to.connections.size(), 2u);
  EXPECT_EQ(net.Exchange(), "DC_CONNECT_ANSWER");
  net.Deliver(Connect(net.sent[0].view().dceth().initiator_session));
  EXPECT_EQ(to.connections.size(), 3u) << "from another port: no copy";
  net.Exchange();
  ASSERT_EQ(Send(2), 0);
  EXPECT_EQ(net.Exchange(), "DC_SEND_ONLY DC_ACKNOWLEDGE");
  EXPECT_EQ(Take(from.send_cq), "1 0; 2 0");
}

TEST_F(DcTest, DataOnTheSecondEndTheFirst) {
  ASSERT_EQ(Send(1), 0);
  net.Exchange();
  const DcDatagram old = net.sent[2];
  Restart();
  ASSERT_EQ(Send(2), 0);
  net.Exchange();
  EXPECT_EQ(counters().dc_connects, 2u);
  EXPECT_EQ(to.connections.size(), 1u);
  EXPECT_EQ(Take(to.recv_cq), "1 0; 2 0");
  // A packet of the first session, and one with its numbers to the second.
  to.PostReceive(3);
  EXPECT_EQ(net.Deliver(old), Disposition::kUnknownQp);
  DcDatagram replayed = old;
  std::copy_n(net.sent.back().view().udp_payload().data() + 13, 3,
              replayed.bytes.data() + wire::kBthDestQpnOffset);
  EXPECT_EQ(net.Deliver(replayed), Disposition::kDelivered);
  EXPECT_EQ(net.Exchange(), "");
  EXPECT_EQ(Take(to.recv_cq), "");
}

// A receive that is in use when its connection ends is not lost.
TEST_F(DcTest, AReceiveInUseIsFlushed) {
  to.PostReceive(1, 0x80000);
  to.PostReceive(2, 0x81000);
  net.lose = [](const DcDatagram& packet) {
    return packet.name() == "DC_SEND_LAST";
  };
  ASSERT_EQ(Post(SendOpcode::kSend, 1, 600), 0);
  net.Exchange();
  Restart();
  net.lose = nullptr;
  ASSERT_EQ(Post(SendOpcode::kSend, 2, 600), 0);
  net.Exchange();
  EXPECT_EQ(Take(to.recv_cq), "1 5; 2 0");
}

TEST_F(DcTest, ConnectionsThatWaitForDataAreLimitedByAddress) {
  for (uint32_t i = 0; i < DcConnections::kMostWaiting; ++i) {
    net.Deliver(Connect(i, 0x100 + i, "10.0.0.9"));
  }
  EXPECT_EQ(to.connections.size(), DcConnections::kMostWaiting);
  net.Deliver(Connect(1, 0x99, "10.0.0.9"));
  EXPECT_EQ(to.connections.size(), DcConnections::kMostWaiting);
  EXPECT_EQ(dct->counters().dropped_window, 1u);
  // Others have their own limit.
  ASSERT_EQ(Send(1), 0);
  net.Exchange();
  EXPECT_EQ(Take(from.send_cq), "1 0");
  // Later the oldest make space.
  net.now += DcConnections::kIdle;
  net.Deliver(Connect(1, 0x99, "10.0.0.9"));
  EXPECT_EQ(to.connections.size(), DcConnections::kMostWaiting + 1);
  EXPECT_EQ(counters().dc_evicted, 1u);
}

TEST_F(DcTest, IdleConnectionsMakeSpace) {
  ASSERT_EQ(Send(1), 0);
  net.Exchange();
  for (uint32_t i = 0; i + 1 < DcConnections::kMost; ++i) {
    const std::string source =
        "10.0.1." + std::to_string(i / DcConnections::kMostWaiting);
    net.Deliver(Connect(i, 0x100 + i, source.c_str()));
  }
  EXPECT_EQ(to.connections.size(), DcConnections::kMost);
  net.Exchange();  // their answers
  const auto other = from.MakeDci(0x12, net.now);
  SendRequest write = Request(SendOpcode::kRdmaWrite, 2, 100);
  ASSERT_EQ(other->PostSend(write, net.now), 0);
  EXPECT_EQ(net.Exchange(), "DC_CONNECT") << "nobody is idle";
  ASSERT_EQ(Send(3), 0);
  EXPECT_EQ(net.Exchange(), "DC_SEND_ONLY DC_ACKNOWLEDGE");
  // All but `dci` have been idle by then.
  net.now += DcConnections::kIdle - kMillisecond;
  ASSERT_EQ(Post(SendOpcode::kRdmaWrite, 4, 10), 0);
  net.Exchange();
  net.Run(DcConnections::kIdle);
  EXPECT_EQ(Take(from.send_cq), "1 0; 3 0; 4 0; 2 0");
  EXPECT_EQ(to.connections.size(), DcConnections::kMost);
  EXPECT_GE(counters().dc_evicted, 1u);
}

TEST_F(DcTest, IdleConnectionsGiveTheirNumbers) {
  to.most_numbers = 1;
  ASSERT_EQ(Send(1), 0);
  net.Exchange();
  const auto other = from.MakeDci(0x12, net.now);
  SendRequest write = Request(SendOpcode::kRdmaWrite, 2, 100);
  ASSERT_EQ(other->PostSend(write, net.now), 0);
  EXPECT_EQ(net.Exchange(), "DC_CONNECT");
  EXPECT_EQ(dct->counters().dropped_window, 1u);
  net.now += DcConnections::kIdle;
  from.endpoint.OnTimer(net.now);
  net.Exchange();
  EXPECT_EQ(Take(from.send_cq), "1 0; 2 0");
  EXPECT_EQ(counters().dc_evicted, 1u);
  EXPECT_EQ(to.numbers.size(), 1u);
}

// The target may have evicted it.
TEST_F(DcTest, AnIdleInitiatorConnectsAnew) {
  ASSERT_EQ(Send(1), 0);
  net.Exchange();
  net.now += DciQueuePair::kIdle - 1;
  ASSERT_EQ(Send(2), 0);
  EXPECT_EQ(net.Exchange(), "DC_SEND_ONLY DC_ACKNOWLEDGE");
  net.now += DciQueuePair::kIdle;
  ASSERT_EQ(Send(3), 0);
  EXPECT_EQ(net.Exchange(),
            "DC_CONNECT DC_CONNECT_ANSWER DC_SEND_ONLY DC_ACKNOWLEDGE");
  EXPECT_EQ(to.connections.size(), 1u);
  EXPECT_EQ(Take(from.send_cq), "1 0; 2 0; 3 0");
}

TEST_F(DcTest, NothingIsLeft) {
  ASSERT_EQ(Send(1), 0);
  net.Exchange();
  EXPECT_EQ(to.numbers.size(), 1u);
  dct.reset();
  EXPECT_EQ(to.connections.size(), 0u);
  EXPECT_TRUE(to.numbers.empty());
  EXPECT_TRUE(to.endpoint.QueuePairNumbers().empty());
  ASSERT_EQ(Send(2), 0);
  net.Run(100 * kSecond);
  EXPECT_EQ(Take(from.send_cq), "1 0; 2 12") << "not replayed elsewhere";
  QpAttributes reset;
  ASSERT_EQ(dci->Modify(reset, kQpState, net.now), 0);
  EXPECT_EQ(from.endpoint.NextTimeout(), kNever);
  EXPECT_FALSE(from.endpoint.HasTransmit());
  int addresses = 0;
  from.endpoint.ForEachAddress([&](const AddressVector&) { ++addresses; });
  EXPECT_EQ(addresses, 0);
}

// Hardware may send data before the answer has arrived.
TEST_F(DcTest, EarlyData) {
  to.PostReceive(1, 0x80000);
  net.Deliver(Connect(0x777));
  wire::Headers headers;
  headers.bth.opcode =
      wire::MakeOpcode(wire::Transport::kDc, wire::Operation::kSendOnly);
  headers.bth.dest_qpn = wire::kNoDcQpn;
  headers.bth.ack_req = true;
  headers.bth.psn = 6;
  DcDatagram data = Connect(0);
  data.bytes.assign(wire::kMaxHeaderSize, 0);
  data.bytes.resize(
      wire::EmitDcHeaders(headers,
                          {.from_initiator = true,
                           .src_qpn = kDci,
                           .initiator_session = 0x777,
                           .responder_session = wire::kNoDcSession,
                           .dct = kDct},
                          data.bytes.data()) +
      8 + wire::kIcrcSize);
  DcDatagram stranger = data;
  stranger.source_port ^= 1;
  net.Deliver(stranger);
  EXPECT_EQ(Take(to.recv_cq), "");
  net.Deliver(data);
  EXPECT_EQ(Take(to.recv_cq), "1 0");
  const std::vector<DcDatagram> answers = net.Transmit(to);
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].name(), "DC_CONNECT_ANSWER");
  EXPECT_EQ(answers[1].name(), "DC_ACKNOWLEDGE");
  EXPECT_EQ(answers[1].view().dceth(), answers[0].view().dceth());
  // Further early data, and data to the connection, are not taken for those of
  // another port.
  to.PostReceive(2, 0x80000);
  to.PostReceive(3, 0x80000);
  wire::StoreBe24(data.bytes.data() + wire::kBthPsnOffset, 7);
  net.Deliver(data);
  const wire::DcEth dc = answers[0].view().dceth();
  wire::StoreBe24(data.bytes.data() + wire::kBthPsnOffset, 8);
  wire::StoreBe24(data.bytes.data() + wire::kBthDestQpnOffset, dc.src_qpn);
  wire::StoreBe24(data.bytes.data() + wire::kBthSize + 9, dc.responder_session);
  net.Deliver(data);
  EXPECT_EQ(Take(to.recv_cq), "2 0; 3 0");
}

// Whoever knows the keys can name any address as the source of early data. The
// responses to a READ would flood the host there.
TEST_F(DcTest, AnEarlyReadIsNotAnswered) {
  net.Deliver(Connect(0x777));
  wire::Headers headers;
  headers.bth.opcode =
      wire::MakeOpcode(wire::Transport::kDc, wire::Operation::kReadRequest);
  headers.bth.dest_qpn = wire::kNoDcQpn;
  headers.bth.ack_req = true;
  headers.bth.psn = 6;
  headers.reth = {to.region->va, to.region->rkey, 100'000};
  wire::DcEth dc = {.from_initiator = true,
                    .src_qpn = kDci,
                    .initiator_session = 0x777,
                    .responder_session = wire::kNoDcSession,
                    .dct = kDct};
  DcDatagram read = Connect(0);
  const auto emit = [&] {
    read.bytes.assign(wire::kMaxHeaderSize, 0);
    read.bytes.resize(wire::EmitDcHeaders(headers, dc, read.bytes.data()) +
                      wire::kIcrcSize);
  };
  emit();
  net.Deliver(read);
  const std::vector<DcDatagram> answers = net.Transmit(to);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].name(), "DC_CONNECT_ANSWER");
  // Who has got the answer may read.
  dc.responder_session = answers[0].view().dceth().responder_session;
  headers.bth.dest_qpn = answers[0].view().dceth().src_qpn;
  emit();
  net.Deliver(read);
  EXPECT_EQ(net.Transmit(to).size(), 391u);
}

// An initiator sends nothing while the responses to its READ arrive.
TEST_F(DcTest, AConnectionThatSendsResponsesIsNotIdle) {
  to.most_numbers = 1;
  ASSERT_EQ(Post(SendOpcode::kRdmaRead, 1, 100'000), 0);
  EXPECT_EQ(net.Exchange().substr(0, 10), "DC_CONNECT");
  EXPECT_EQ(Take(from.send_cq), "1 0");
  ASSERT_EQ(Post(SendOpcode::kRdmaRead, 2, 100'000), 0);
  for (const DcDatagram& request : net.Transmit(from)) net.Deliver(request);
  // The network takes the responses slowly.
  for (int i = 0; i < 3; ++i) {
    net.now += DcConnections::kIdle / 2;
    ASSERT_FALSE(net.Transmit(to, 1).empty());
  }
  net.Deliver(Connect(0x5555, 0x99, "10.0.0.9"));
  EXPECT_EQ(counters().dc_evicted, 0u);
  EXPECT_EQ(to.connections.size(), 1u);
}

// Its process was stopped, or its path's window was in use by others.
TEST_F(DcTest, AMessageThatWasSentInPartGoesOn) {
  constexpr uint32_t kPackets = 2000;
  ASSERT_EQ(Send(1), 0);
  net.Exchange();
  EXPECT_EQ(Take(to.recv_cq), "1 0");
  EXPECT_EQ(Take(from.send_cq), "1 0");
  to.PostReceive(2, 0x80000, kPackets * DcHost::kMtu);
  to.PostReceive(3);
  const uint32_t first = dci->Report().send_psn;
  ASSERT_EQ(Post(SendOpcode::kSend, 2, kPackets * DcHost::kMtu), 0);
  // As much of it as the window permits, which is acknowledged.
  for (const DcDatagram& packet : net.Transmit(from)) net.Deliver(packet);
  for (const DcDatagram& answer : net.Transmit(to)) net.Deliver(answer);
  ASSERT_LT(wire::PsnDiff(dci->Report().send_psn, first), int32_t{kPackets});
  ASSERT_EQ(dci->Report().unacked_psn, dci->Report().send_psn);
  // Then any packet arrives, before it sends again.
  net.now += DciQueuePair::kIdle;
  net.Deliver(net.sent[1]);
  ASSERT_EQ(Post(SendOpcode::kSend, 3, 16), 0);
  EXPECT_EQ(net.Exchange().find("DC_CONNECT"), std::string::npos);
  EXPECT_EQ(Take(to.recv_cq), "2 0; 3 0");
  EXPECT_EQ(Take(from.send_cq), "2 0; 3 0");
}

// Each field of a packet counts.
TEST_F(DcTest, ForgedResponsesAndRequestsAreDropped) {
  ASSERT_EQ(Send(1), 0);
  net.Exchange();
  const DcDatagram request = net.sent[2];
  const DcDatagram response = net.sent[3];
  to.PostReceive(2);
  ASSERT_EQ(Post(SendOpcode::kSend, 2, 16), 0);
  net.lose = [](const DcDatagram&) { return true; };
  net.Exchange();  // it is outstanding
  for (DcDatagram forged : {request, response}) {
    const bool is_request = forged.view().info().is_request;
    wire::StoreBe24(forged.bytes.data() + wire::kBthPsnOffset,
                    wire::PsnAdd(request.view().bth().psn, 1));
    for (const size_t at : {12, 13, 15, 17, 19, 21, 23, 25, 27}) {
      DcDatagram changed = forged;
      changed.bytes[at] ^= 0x10;
      net.Deliver(changed);
    }
    if (is_request) {
      DcDatagram other_port = forged;
      other_port.source_port ^= 1;
      net.Deliver(other_port);
    }
    EXPECT_EQ(Take(to.recv_cq), is_request ? "1 0" : "");
    EXPECT_EQ(Take(from.send_cq), is_request ? "1 0" : "");
  }
  EXPECT_EQ(dci->state(), QpState::kRts);
}

// Not accepted: a NAK of reliable datagrams, or an answer without numbers.
TEST_F(DcTest, OtherAnswersAreNone) {
  net.lose = [](const DcDatagram& packet) {
    return packet.name() == "DC_CONNECT_ANSWER";
  };
  ASSERT_EQ(Send(1), 0);
  net.Exchange();
  const DcDatagram answer = net.sent.back();
  for (const std::pair<size_t, std::vector<uint8_t>>& change :
       std::vector<std::pair<size_t, std::vector<uint8_t>>>{
           {13, {0, 0, 0}},
           {13, {255, 255, 255}},
           {21, {0, 0, 0}},
           {21, {255, 255, 255}},
           {9, {1, 2, 3}},
           {17, {1, 2, 3}},
           {25, {1, 2, 3}},
           {12, {0x11}},
           {12, {0x20}}}) {
    DcDatagram forged = answer;
    std::copy(change.second.begin(), change.second.end(),
              forged.bytes.begin() + static_cast<ptrdiff_t>(change.first));
    net.Deliver(forged);
    EXPECT_EQ(net.Exchange(), "") << change.first;
  }
  DcDatagram shorter = answer;
  shorter.bytes.resize(shorter.bytes.size() - wire::kDcAnswerSize);
  net.Deliver(shorter);
  EXPECT_EQ(net.Exchange(), "");
  net.Deliver(answer);
  EXPECT_EQ(net.Exchange(), "DC_SEND_ONLY DC_ACKNOWLEDGE");
  EXPECT_EQ(Take(from.send_cq), "1 0");
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

TEST_F(DcTest, CapturedRequestsMakeTheTargetSendTheCapturedAnswers) {
  dct = nullptr;
  dct = to.MakeDct(0x00c0de, net.now, 0xffeeddcc);
  to.next_number = 0x807ff4;
  to.next_random = {0x61e97d};
  // "READ/WRITE" memory as the captured peer's.
  FakeMemory::Region& region =
      to.memory.Add(0x00007f69f0384000, 0x40000, DcHost::kPd,
                    kAccessLocalWrite | kAccessRemoteWrite);
  region.rkey = 0x0005382a;
  const auto deliver = [&](const std::string& hex, size_t payload) {
    DcDatagram packet = Connect(0);
    packet.bytes.clear();
    for (size_t i = 0; i < hex.size(); i += 2) {
      packet.bytes.push_back(
          static_cast<uint8_t>(std::stoul(hex.substr(i, 2), nullptr, 16)));
    }
    packet.bytes.resize(packet.bytes.size() + payload + wire::kIcrcSize);
    packet.source_port = 0xf018;
    EXPECT_EQ(net.Deliver(packet), Disposition::kDelivered);
  };
  const auto answer = [&] {
    std::string hex;
    for (const DcDatagram& packet : net.Transmit(to)) {
      EXPECT_EQ(packet.source_port, 0xf018);
      for (const uint8_t byte :
           std::span(packet.bytes).first(packet.bytes.size() - 4)) {
        char two[3];
        std::snprintf(two, sizeof(two), "%02x", byte);
        hex += two;
      }
      hex += ";";
    }
    return hex;
  };
  deliver(
      "5540ffff00ffffff80a9454d110090350071500400ffffff0000c0de00000000"
      "200000000000000000000000ffeeddcc",
      0);
  EXPECT_EQ(answer(),
            "5140ffff0000903500a9454d10807ff4007150040061e97d0000c0de00000000"
            "640000001000000000000000;");
  // It was captured with an MTU of 4096.
  QpAttributes large = dct->attributes();
  ASSERT_EQ(large.path_mtu, DcHost::kMtu);
  deliver(
      "4640ffff00807ff480a9454e11009035007150040061e97d0000c0de00000000"
      "00007f69f03840000005382a00000400",
      DcHost::kMtu);
  EXPECT_EQ(answer(),
            "5140ffff0000903500a9454e10807ff4007150040061e97d0000c0de00000000"
            "1f000000;")
      << "of the first packet of a message that goes on";
  deliver(
      "4740ffff00807ff400a9454f110090350071500400"
      "61e97d0000c0de00000000",
      DcHost::kMtu);
  EXPECT_EQ(answer(), "");
}

TEST_F(DcTest, CapturedAnswersCarryTheInitiatorThrough) {
  dci = from.Make(QpType::kDci, 0x009035);
  QpAttributes to_rts;
  to_rts.path_mtu = 4096;
  to_rts.sq_psn = 0xa9454d;
  to_rts.timeout = 14;
  to_rts.retry_cnt = to_rts.rnr_retry = 7;
  for (const QpState state : {QpState::kInit, QpState::kRtr, QpState::kRts}) {
    to_rts.state = state;
    ASSERT_EQ(
        dci->Modify(to_rts, RequiredAttributes(QpType::kDci, state), net.now),
        0);
  }
  from.next_random = {0x715004};
  SendRequest write = Request(SendOpcode::kRdmaWrite, 1, 0x40000);
  write.remote_addr = 0x00007f69f0384000;
  write.rkey = 0x0005382a;
  write.remote_qpn = 0x00c0de;
  write.dc_access_key = 0xffeeddcc;
  ASSERT_EQ(dci->PostSend(write, net.now), 0);
  const auto hex = [](const DcDatagram& packet, size_t bytes) {
    std::string text;
    for (const uint8_t byte : std::span(packet.bytes).first(bytes)) {
      char two[3];
      std::snprintf(two, sizeof(two), "%02x", byte);
      text += two;
    }
    return text;
  };
  const auto deliver = [&](const std::string& text) {
    DcDatagram packet;
    for (size_t i = 0; i < text.size(); i += 2) {
      packet.bytes.push_back(
          static_cast<uint8_t>(std::stoul(text.substr(i, 2), nullptr, 16)));
    }
    packet.bytes.resize(packet.bytes.size() + wire::kIcrcSize);
    packet.source = to.address;
    packet.destination = from.address;
    packet.source_port = 0xf018;
    EXPECT_EQ(net.Deliver(packet), Disposition::kDelivered);
  };
  std::vector<DcDatagram> sent = net.Transmit(from);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(hex(sent[0], 48),
            "5540ffff00ffffff80a9454d110090350071500400ffffff0000c0de00000000"
            "200000000000000000000000ffeeddcc");
  deliver(
      "5140ffff0000903500a9454d10807ff4007150040061e97d0000c0de00000000"
      "640000001000000000000000");
  sent = net.Transmit(from);
  ASSERT_GE(sent.size(), 2u);
  // But for AckReq, which our requester sets elsewhere.
  sent[0].bytes[wire::kBthAckReqOffset] = 0x80;
  EXPECT_EQ(hex(sent[0], 48),
            "4640ffff00807ff480a9454e110090350071500400"
            "61e97d0000c0de0000000000007f69f03840000005382a00040000");
  sent[1].bytes[wire::kBthAckReqOffset] = 0;
  EXPECT_EQ(hex(sent[1], 32),
            "4740ffff00807ff400a9454f110090350071500400"
            "61e97d0000c0de00000000");
  deliver(
      "5140ffff0000903500a9454e10807ff4007150040061e97d0000c0de00000000"
      "1f000000");
  EXPECT_EQ(dci->Report().unacked_psn, 0xa9454fu);
  EXPECT_EQ(dci->state(), QpState::kRts);
}

}  // namespace
}  // namespace transport
