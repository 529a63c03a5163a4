// Losses and errors of dynamic connections: what is retransmitted, and what
// ends.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "transport/testing/bring_up.h"
#include "transport/testing/dc_fixture.h"
#include "transport/testing/dc_hosts.h"
#include "wire/aeth.h"

namespace transport {
namespace {

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
    EXPECT_EQ(counters().dc_connects, connects + 1)
        << "a retransmitted CONNECT is no other connection";
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

TEST_F(DcTest, LostDataAreRetransmitted) {
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

TEST_F(DcTest, NumbersWithoutATargetAreNotAnswered) {
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
  EXPECT_EQ(to.connections.size(), 2u) << "the failed connection is gone";
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

}  // namespace
}  // namespace transport
