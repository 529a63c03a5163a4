// Multicast datagrams at the endpoint: copies and drops.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "transport/queue_pairs.h"
#include "transport/testing/bring_up.h"
#include "transport/testing/fake_memory.h"
#include "transport/testing/recorders.h"
#include "wire/icrc.h"
#include "wire/packet.h"

namespace transport {
namespace {

constexpr PdId kPd = 7;
constexpr uint32_t kQkey = 0x55;
constexpr uint16_t kSenderPort = 0xc123;

wire::IpAddress Address(const char* text) {
  return *wire::IpAddress::Parse(text);
}

// Queue pairs of one endpoint, with four receives each.
class MulticastTest : public ::testing::Test {
 protected:
  MulticastTest() {
    region = &memory.Add(0x10000, 1 << 16, kPd, kAccessLocalWrite);
    for (int i = 0; i < 3; ++i) {
      QpConfig config;
      config.type = QpType::kUd;
      config.qpn = kFirstQpn + i;
      config.pd = kPd;
      config.capacity = {.max_send_wr = 4,
                         .max_recv_wr = 4,
                         .max_send_sge = 1,
                         .max_recv_sge = 1};
      config.memory = &memory;
      config.send_cq = &sends;
      config.recv_cq = &receives;
      config.events = &events;
      qps.push_back(MakeQueuePair(endpoint, config));
      QpAttributes attributes;
      attributes.qkey = kQkey;
      EXPECT_EQ(BringUp(*qps.back(), attributes, now), 0);
      const Sge sge = {region->va, 256, region->lkey};
      for (uint64_t n = 0; n < 4; ++n) {
        EXPECT_EQ(qps.back()->PostReceive({n, {&sge, 1}}, now), 0);
      }
    }
  }

  wire::Headers Headers(uint32_t src_qpn = 0x99) const {
    wire::Headers headers;
    headers.bth.opcode =
        wire::MakeOpcode(wire::Transport::kUd, wire::Operation::kSendOnly);
    headers.bth.dest_qpn = wire::kMulticastQpn;
    headers.deth = {.qkey = kQkey, .src_qpn = src_qpn};
    return headers;
  }
  Disposition Deliver(const wire::Headers& headers, const wire::IpAddress& to) {
    uint8_t header[wire::kMaxHeaderSize];
    const size_t size = wire::EmitHeaders(headers, header);
    std::vector<uint8_t> packet(header, header + size);
    packet.resize(size + 8 + wire::kIcrcSize);
    wire::IcrcFlow(source, to, kSenderPort, wire::kRoceUdpPort)
        .Store(packet, 0);
    return endpoint.OnDatagram({.bytes = packet,
                                .source = source,
                                .destination = to,
                                .source_port = kSenderPort},
                               now);
  }
  // Indices of the queue pairs that received, as "0 2".
  std::string Receivers() {
    std::string text;
    for (const Completion& c : receives.Take()) {
      EXPECT_EQ(c.status, WcStatus::kSuccess);
      EXPECT_EQ(c.byte_len, 48u);
      if (!text.empty()) text += " ";
      text += std::to_string(c.qpn - kFirstQpn);
    }
    return text;
  }

  static constexpr uint32_t kFirstQpn = 0x10;
  const wire::IpAddress group = Address("239.1.2.3");
  const wire::IpAddress group6 = Address("ff0e::7");
  wire::IpAddress source = Address("10.0.0.2");
  Time now = kSecond;
  FakeMemory memory;
  FakeMemory::Region* region = nullptr;
  RecordingCq sends;
  RecordingCq receives;
  RecordingEvents events;
  Endpoint endpoint;
  std::vector<std::unique_ptr<QueuePair>> qps;
};

TEST_F(MulticastTest, EveryAttachedQueuePairGetsOneCopy) {
  endpoint.Attach(qps[0].get(), group);
  endpoint.Attach(qps[2].get(), group);
  endpoint.Attach(qps[2].get(), group);
  EXPECT_EQ(Deliver(Headers(), group), Disposition::kDelivered);
  EXPECT_EQ(Receivers(), "0 2");
  endpoint.Detach(qps[0].get(), group);
  EXPECT_EQ(Deliver(Headers(), group), Disposition::kDelivered);
  EXPECT_EQ(Receivers(), "2");
  endpoint.Detach(qps[2].get(), group);
  EXPECT_EQ(Deliver(Headers(), group), Disposition::kUnknownQp);
}

TEST_F(MulticastTest, OnlyAttachedGroups) {
  endpoint.Attach(qps[0].get(), group);
  endpoint.Attach(qps[1].get(), Address("239.1.2.4"));
  EXPECT_EQ(Deliver(Headers(), group), Disposition::kDelivered);
  EXPECT_EQ(Receivers(), "0");
  EXPECT_TRUE(endpoint.IsAttached(qps[0].get(), group));
  EXPECT_FALSE(endpoint.IsAttached(qps[1].get(), group));
  EXPECT_EQ(endpoint.GroupsOf(qps[0].get()),
            std::vector<wire::IpAddress>{group});
}

TEST_F(MulticastTest, Ipv6) {
  source = Address("fe80::2");
  endpoint.Attach(qps[1].get(), group6);
  EXPECT_EQ(Deliver(Headers(), group6), Disposition::kDelivered);
  EXPECT_EQ(Receivers(), "1");
}

TEST_F(MulticastTest, OnlyTheMulticastQueuePairNumber) {
  endpoint.Attach(qps[0].get(), group);
  wire::Headers headers = Headers();
  headers.bth.dest_qpn = qps[0]->qpn();
  EXPECT_EQ(Deliver(headers, group), Disposition::kUnknownQp);
  headers = Headers();
  headers.bth.opcode =
      wire::MakeOpcode(wire::Transport::kUc, wire::Operation::kSendOnly);
  EXPECT_EQ(Deliver(headers, group), Disposition::kUnknownQp);
  // This number has no meaning without a group.
  EXPECT_EQ(Deliver(Headers(), Address("10.0.0.1")), Disposition::kUnknownQp);
  EXPECT_EQ(Receivers(), "");
}

TEST_F(MulticastTest, TheQkeyIsCheckedPerQueuePair) {
  endpoint.Attach(qps[0].get(), group);
  endpoint.Attach(qps[1].get(), group);
  QpAttributes attributes;
  attributes.qkey = kQkey + 1;
  ASSERT_EQ(qps[0]->Modify(attributes, kQpQkey, now), 0);
  EXPECT_EQ(Deliver(Headers(), group), Disposition::kDelivered);
  EXPECT_EQ(Receivers(), "1");
  EXPECT_EQ(qps[0]->counters().dropped_qkey, 1u);
}

TEST_F(MulticastTest, ADestroyedQueuePairIsDetached) {
  endpoint.Attach(qps[0].get(), group);
  endpoint.Attach(qps[1].get(), group);
  qps[0].reset();
  EXPECT_EQ(Deliver(Headers(), group), Disposition::kDelivered);
  EXPECT_EQ(Receivers(), "1");
}

TEST_F(MulticastTest, TheSenderGetsNoCopy) {
  endpoint.Attach(qps[0].get(), group);
  endpoint.Attach(qps[1].get(), group);
  // A queue pair of another host may have the same number.
  EXPECT_EQ(Deliver(Headers(qps[0]->qpn()), group), Disposition::kDelivered);
  EXPECT_EQ(Receivers(), "0 1");
  AddressVector av;
  av.source = source;
  av.destination = group;
  av.source_port = kSenderPort;
  const Sge sge = {region->va, 8, region->lkey};
  ASSERT_EQ(qps[0]->PostSend({.wr_id = 1,
                              .opcode = SendOpcode::kSend,
                              .sges = {&sge, 1},
                              .ah = &av,
                              .remote_qpn = wire::kMulticastQpn,
                              .remote_qkey = kQkey},
                             now),
            0);
  EXPECT_EQ(Deliver(Headers(qps[0]->qpn()), group), Disposition::kDelivered);
  EXPECT_EQ(Receivers(), "1");
}

}  // namespace
}  // namespace transport
