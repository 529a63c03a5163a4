// Many queue pairs of one endpoint: turns, batches for several, and their end.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "transport/endpoint/endpoint.h"
#include "transport/endpoint/transmit_scheduler.h"
#include "transport/queue_pairs.h"
#include "transport/testing/wire_peer.h"
#include "wire/icrc.h"

namespace transport {
namespace {

using enum wire::Operation;
using Bytes = std::vector<uint8_t>;

// More queue pairs at the endpoint of a WirePeer, with the same peer.
class CrowdTest : public ::testing::Test {
 protected:
  QueuePair* Add(uint32_t qpn) {
    QpConfig config = peer.qp->config();
    config.qpn = qpn;
    config.capacity = {};
    all.push_back(MakeQueuePair(peer.endpoint, config));
    QpAttributes a = peer.attributes;
    for (QpState state : {QpState::kInit, QpState::kRtr, QpState::kRts}) {
      a.state = state;
      EXPECT_EQ(all.back()->Modify(a, WirePeer::MaskFor(state), 0), 0);
    }
    return all.back().get();
  }
  void DeliverTo(uint32_t qpn, wire::Headers headers, size_t payload = 0) {
    headers.bth.dest_qpn = qpn;
    EXPECT_EQ(peer.Deliver(headers, payload), Disposition::kDelivered);
  }

  WirePeer peer;
  std::vector<std::unique_ptr<QueuePair>> all;
};

TEST_F(CrowdTest, TurnsAreFairInBytes) {
  // Both stream a READ, with packets of different sizes (16 to 1).
  peer.target->claimed = 1u << 30;
  Add(1000);
  peer.attributes.path_mtu = 4096;
  Add(1001);
  DeliverTo(1000, peer.Read(100, 0, 1 << 24));
  DeliverTo(1001, peer.Read(100, 0, 1 << 24));
  const auto sent = [&](int i) { return all[i]->counters().tx_bytes; };
  int bursts = 0;
  while (sent(0) < (1 << 24) && sent(1) < (1 << 24)) {
    ASSERT_NE(peer.TransmitOne(), "");
    ++bursts;
    const uint64_t apart =
        std::max(sent(0), sent(1)) - std::min(sent(0), sent(1));
    ASSERT_LE(apart, 1u * TransmitScheduler::kQuantum + 2 * 65507);
  }
  EXPECT_GT(bursts, 64);
}

TEST_F(CrowdTest, SixteenThousand) {
  constexpr uint32_t kCount = 16384;
  for (uint32_t i = 0; i < kCount; ++i) Add(0x1000 + i);
  for (uint32_t i = 0; i < kCount; ++i) {
    DeliverTo(0x1000 + i, peer.Write(kWriteOnly, 100, 0, 0, true));
  }
  for (uint32_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(peer.TransmitOne(), "ACK 100 msn 1");
  }
  EXPECT_EQ(peer.TransmitOne(), "");
  EXPECT_FALSE(peer.endpoint.HasTransmit());
  EXPECT_EQ(peer.endpoint.counters().tx_datagrams, kCount);
}

// A GRO batch may have packets for several queue pairs, in any order; all of
// them are scheduled.
TEST_F(CrowdTest, ABatchForSeveral) {
  Add(1000);
  Add(1001);
  struct Strays : StraySink {
    void OnStray(const Datagram& datagram, uint32_t qpn) override {
      seen.emplace_back(qpn, datagram.segment_index);
    }
    std::vector<std::pair<uint32_t, uint16_t>> seen;
  } strays;
  Bytes bytes;
  uint16_t id = 0;
  uint32_t psn[2] = {100, 100};
  for (const uint32_t qpn : {1000, 1001, 1000, 77, 1000, 1001}) {
    wire::Headers headers = peer.Request(kSendOnly, 0, true);
    if (qpn != 77) {
      headers = peer.Write(kWriteOnly, psn[qpn - 1000]++, 0, 0, true);
    }
    headers.bth.dest_qpn = qpn;
    Bytes packet = peer.Build(headers);
    packet.resize(peer.Build(peer.Write(kWriteOnly, 100, 0, 0)).size());
    wire::IcrcFlow(peer.datagram.source, peer.datagram.destination,
                   peer.datagram.source_port, wire::kRoceUdpPort)
        .Store(packet, id++);
    bytes.insert(bytes.end(), packet.begin(), packet.end());
  }
  GroBatch batch;
  batch.bytes = bytes;
  batch.segment_size = bytes.size() / 6;
  batch.source = peer.datagram.source;
  batch.destination = peer.datagram.destination;
  batch.source_port = peer.datagram.source_port;
  peer.endpoint.OnGroBatch(batch, peer.now, &strays);
  using Seen = std::pair<uint32_t, uint16_t>;
  EXPECT_EQ(strays.seen, std::vector<Seen>{Seen(77, 3)});
  EXPECT_EQ(peer.TransmitOne(), "ACK 102 msn 3");
  EXPECT_EQ(peer.TransmitOne(), "ACK 101 msn 2");
  EXPECT_EQ(peer.TransmitOne(), "");
}

TEST_F(CrowdTest, DestroyedWithWorkToDo) {
  for (uint32_t i = 0; i < 10; ++i) {
    Add(1000 + i);
    DeliverTo(1000 + i, peer.Write(kWriteOnly, 100, 0, 4, true), 4);
  }
  for (int i : {9, 0, 4}) all[i].reset();
  wire::Headers headers = peer.Write(kWriteOnly, 101, 0, 0, true);
  headers.bth.dest_qpn = 1004;
  EXPECT_EQ(peer.Deliver(headers), Disposition::kUnknownQp);
  peer.endpoint.OnReceiveOverflow(peer.now);
  int acks = 0;
  for (std::string lines = peer.TransmitOne(); !lines.empty();
       lines = peer.TransmitOne()) {
    EXPECT_EQ(lines, "CNP; ACK 100 msn 1");
    ++acks;
  }
  EXPECT_EQ(acks, 7);
  EXPECT_EQ(peer.endpoint.NextTimeout(), kNever);
}

TEST_F(CrowdTest, OneSegmentPerBurst) {
  WirePeer::Options options;
  options.max_segments = 1;
  WirePeer single(options);
  single.Connect();
  single.Deliver(single.Read(100, 0, 600));
  EXPECT_EQ(single.Transmit(),
            "READ_FIRST 100 msn 1 [256] | READ_MIDDLE 101 [256] | "
            "READ_LAST 102 msn 1 [88]");
}

TEST_F(CrowdTest, SmallBurstBuffer) {
  WirePeer::Options options;
  options.burst_bytes = 600;
  WirePeer small(options);
  small.Connect();
  small.Deliver(small.Read(100, 0, 1280));
  EXPECT_EQ(small.Transmit(),
            "READ_FIRST 100 msn 1 [256]; READ_MIDDLE 101 [256] | "
            "READ_MIDDLE 102 [256]; READ_MIDDLE 103 [256] | "
            "READ_LAST 104 msn 1 [256]");
}

}  // namespace
}  // namespace transport
