// How long a target keeps its connections, and how many.
#include <string>

#include "gtest/gtest.h"
#include "transport/dc/dci_queue_pair.h"
#include "transport/testing/dc_fixture.h"
#include "transport/testing/dc_hosts.h"
#include "wire/psn.h"

namespace transport {
namespace {

// A CONNECT that another sender sends in the name of this initiator.
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
  for (uint32_t i = 0; i < DcConnections::kMaxWaiting; ++i) {
    net.Deliver(Connect(i, 0x100 + i, "10.0.0.9"));
  }
  EXPECT_EQ(to.connections.size(), DcConnections::kMaxWaiting);
  net.Deliver(Connect(1, 0x99, "10.0.0.9"));
  EXPECT_EQ(to.connections.size(), DcConnections::kMaxWaiting);
  EXPECT_EQ(dct->counters().dropped_window, 1u);
  // Other addresses have their own limit.
  ASSERT_EQ(Send(1), 0);
  net.Exchange();
  EXPECT_EQ(Take(from.send_cq), "1 0");
  // Later the oldest ones make space.
  net.now += DcConnections::kIdle;
  net.Deliver(Connect(1, 0x99, "10.0.0.9"));
  EXPECT_EQ(to.connections.size(), DcConnections::kMaxWaiting + 1);
  EXPECT_EQ(counters().dc_evicted, 1u);
}

TEST_F(DcTest, IdleConnectionsMakeSpace) {
  ASSERT_EQ(Send(1), 0);
  net.Exchange();
  for (uint32_t i = 0; i + 1 < DcConnections::kMax; ++i) {
    const std::string source =
        "10.0.1." + std::to_string(i / DcConnections::kMaxWaiting);
    net.Deliver(Connect(i, 0x100 + i, source.c_str()));
  }
  EXPECT_EQ(to.connections.size(), DcConnections::kMax);
  net.Exchange();  // their answers
  const auto other = from.MakeDci(0x12, net.now);
  SendRequest write = Request(SendOpcode::kRdmaWrite, 2, 100);
  ASSERT_EQ(other->PostSend(write, net.now), 0);
  EXPECT_EQ(net.Exchange(), "DC_CONNECT") << "no connection is idle";
  ASSERT_EQ(Send(3), 0);
  EXPECT_EQ(net.Exchange(), "DC_SEND_ONLY DC_ACKNOWLEDGE");
  // All but `dci` have been idle by then.
  net.now += DcConnections::kIdle - kMillisecond;
  ASSERT_EQ(Post(SendOpcode::kRdmaWrite, 4, 10), 0);
  net.Exchange();
  net.Run(DcConnections::kIdle);
  EXPECT_EQ(Take(from.send_cq), "1 0; 3 0; 4 0; 2 0");
  EXPECT_EQ(to.connections.size(), DcConnections::kMax);
  EXPECT_GE(counters().dc_evicted, 1u);
}

TEST_F(DcTest, IdleConnectionsGiveTheirNumbers) {
  to.max_numbers = 1;
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

// The target may have evicted the connection.
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

// An initiator sends nothing while the responses to its READ arrive.
TEST_F(DcTest, AConnectionThatSendsResponsesIsNotIdle) {
  to.max_numbers = 1;
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

// The initiator's process was stopped, or other queue pairs used its path's
// window.
TEST_F(DcTest, AMessageThatWasSentInPartContinues) {
  constexpr uint32_t kPackets = 2000;
  ASSERT_EQ(Send(1), 0);
  net.Exchange();
  EXPECT_EQ(Take(to.recv_cq), "1 0");
  EXPECT_EQ(Take(from.send_cq), "1 0");
  to.PostReceive(2, 0x80000, kPackets * DcHost::kMtu);
  to.PostReceive(3);
  const uint32_t first = dci->Report().send_psn;
  ASSERT_EQ(Post(SendOpcode::kSend, 2, kPackets * DcHost::kMtu), 0);
  // Sends as much of it as the window permits. That is acknowledged.
  for (const DcDatagram& packet : net.Transmit(from)) net.Deliver(packet);
  for (const DcDatagram& answer : net.Transmit(to)) net.Deliver(answer);
  ASSERT_LT(wire::PsnDiff(dci->Report().send_psn, first), int32_t{kPackets});
  ASSERT_EQ(dci->Report().unacked_psn, dci->Report().send_psn);
  // A packet arrives before the initiator sends again.
  net.now += DciQueuePair::kIdle;
  net.Deliver(net.sent[1]);
  ASSERT_EQ(Post(SendOpcode::kSend, 3, 16), 0);
  EXPECT_EQ(net.Exchange().find("DC_CONNECT"), std::string::npos);
  EXPECT_EQ(Take(to.recv_cq), "2 0; 3 0");
  EXPECT_EQ(Take(from.send_cq), "2 0; 3 0");
}

}  // namespace
}  // namespace transport
