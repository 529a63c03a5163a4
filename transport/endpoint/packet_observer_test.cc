// Packet observers, and reports about queue pairs.
#include "transport/endpoint/packet_observer.h"

#include <map>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "transport/testing/requester_peer.h"
#include "transport/testing/wire_peer.h"

namespace transport {
namespace {

using enum wire::Operation;
using Bytes = std::vector<uint8_t>;

struct Recorder final : PacketObserver {
  struct Seen {
    ObservedPacket packet;
    Bytes bytes;
  };
  void OnPacket(const ObservedPacket& packet) override {
    seen.push_back({packet, Bytes(packet.bytes.begin(), packet.bytes.end())});
  }
  std::vector<Seen> seen;
};

class PacketObserverTest : public ::testing::Test {
 protected:
  PacketObserverTest() {
    peer.Connect();
    peer.endpoint.Observe(&recorder);
  }
  Recorder recorder;
  WirePeer peer;
};

TEST_F(PacketObserverTest, SeesReceivedPacketsWithTheirDisposition) {
  const Bytes good = peer.Build(peer.Request(kSendOnly, WirePeer::kPsn), 8);
  Bytes bad = good;
  bad.back() ^= 1;
  peer.now = 77;
  peer.Deliver(bad);
  peer.Deliver(good);
  peer.Deliver(Bytes(3));
  ASSERT_EQ(recorder.seen.size(), 3u);
  EXPECT_EQ(recorder.seen[0].packet.disposition, Disposition::kBadIcrc);
  EXPECT_EQ(recorder.seen[0].bytes, bad);
  EXPECT_EQ(recorder.seen[1].packet.disposition, Disposition::kDelivered);
  EXPECT_EQ(recorder.seen[1].bytes, good);
  EXPECT_EQ(recorder.seen[1].packet.direction, Direction::kReceived);
  EXPECT_EQ(recorder.seen[1].packet.time, 77);
  EXPECT_EQ(recorder.seen[1].packet.source, peer.datagram.source);
  EXPECT_EQ(recorder.seen[1].packet.destination, peer.datagram.destination);
  EXPECT_EQ(recorder.seen[1].packet.source_port, peer.datagram.source_port);
  EXPECT_EQ(recorder.seen[2].packet.disposition, Disposition::kTooShort);
}

TEST_F(PacketObserverTest, SeesEachSegmentOfAGroBatch) {
  Bytes all;
  for (uint32_t i = 0; i < 3; ++i) {
    const Bytes one =
        peer.Build(peer.Request(kSendOnly, WirePeer::kPsn + i), 8);
    all.insert(all.end(), one.begin(), one.end());
  }
  GroBatch batch;
  batch.bytes = all;
  batch.segment_size = all.size() / 3;
  batch.source = peer.datagram.source;
  batch.destination = peer.datagram.destination;
  batch.source_port = peer.datagram.source_port;
  peer.endpoint.OnGroBatch(batch, 5, nullptr);
  ASSERT_EQ(recorder.seen.size(), 3u);
  for (uint16_t i = 0; i < 3; ++i) {
    EXPECT_EQ(recorder.seen[i].packet.segment_index, i);
    EXPECT_EQ(recorder.seen[i].bytes,
              Bytes(all.begin() + i * 24, all.begin() + (i + 1) * 24));
  }
}

TEST_F(PacketObserverTest, SeesTransmittedPacketsInWireOrder) {
  peer.Deliver(peer.Read(WirePeer::kPsn, 0, 2 * WirePeer::kMtu + 4));
  recorder.seen.clear();
  const std::string sent = peer.Transmit();
  std::vector<std::pair<int, size_t>> places;  // and bytes
  for (const Recorder::Seen& seen : recorder.seen) {
    EXPECT_EQ(seen.packet.direction, Direction::kTransmitted);
    EXPECT_EQ(seen.packet.disposition, Disposition::kDelivered);
    EXPECT_EQ(seen.packet.qpn, WirePeer::kQpn);
    EXPECT_EQ(seen.packet.source, peer.datagram.destination);
    EXPECT_EQ(seen.packet.destination, peer.datagram.source);
    places.emplace_back(seen.packet.segment_index, seen.bytes.size());
    wire::PacketView packet;
    EXPECT_EQ(wire::PacketView::Parse(seen.bytes, &packet),
              wire::ParseError::kOk);
  }
  // The first packet has more headers, so its length differs.
  const size_t first = 12 + 4 + WirePeer::kMtu + 4;
  const size_t middle = 12 + WirePeer::kMtu + 4;
  EXPECT_EQ(places, (std::vector<std::pair<int, size_t>>{
                        {0, first}, {1, middle}, {0, 12 + 4 + 4 + 4}}))
      << sent;
}

// The sink of a port that gives each burst its own hop limit.
class MarkingSink final : public BurstSink {
 public:
  Burst* Begin(const Flow& flow) override {
    burst_.Begin(&flow);
    burst_.set_hop_mark(5);
    return &burst_;
  }

 private:
  std::vector<uint8_t> buffer_ = std::vector<uint8_t>(65536);
  Burst burst_{buffer_, 64};
};

TEST_F(PacketObserverTest, SeesTheHopLimitOfTransmittedPackets) {
  const auto hop_limits = [&](BurstSink* sink) {
    recorder.seen.clear();
    peer.Deliver(peer.Read(WirePeer::kPsn, 0, 100));
    while (peer.endpoint.PollTransmit(0, sink) != nullptr) {
    }
    std::set<int> seen;
    for (const Recorder::Seen& packet : recorder.seen) {
      if (packet.packet.direction == Direction::kTransmitted) {
        seen.insert(packet.packet.hop_limit);
      }
    }
    return seen;
  };
  std::vector<uint8_t> buffer(65536);
  OneBurst plain(buffer, 64);
  EXPECT_EQ(hop_limits(&plain), std::set<int>{64});
  MarkingSink marking;
  EXPECT_EQ(hop_limits(&marking), std::set<int>{59});
}

// A packet of a connection is shown with its path. Drops of the receive socket
// are shown, too.
TEST(PacketObserverPathTest, SeesThePathOfAConnection) {
  struct PathRecorder final : PacketObserver {
    void OnPacket(const ObservedPacket& packet) override {
      if (packet.path != nullptr) paths.push_back(*packet.path);
    }
    void OnOverflow(uint64_t packets) override { overflow += packets; }
    std::vector<ObservedPath> paths;
    uint64_t overflow = 0;
  };
  PathRecorder recorder;
  RequesterPeer peer;
  peer.Connect();
  peer.endpoint.Observe(&recorder);
  ASSERT_EQ(peer.Write(1, 100), 0);
  peer.Transmit();
  ASSERT_EQ(recorder.paths.size(), 1u);
  EXPECT_EQ(recorder.paths[0].window, Path::kInitialWindow);
  EXPECT_GT(recorder.paths[0].in_flight, 100u);
  EXPECT_EQ(recorder.paths[0].round_trip, 0);
  peer.endpoint.OnReceiveOverflow(0, 9);
  EXPECT_EQ(recorder.overflow, 9u);
}

TEST_F(PacketObserverTest, SeesNothingAfterRemoval) {
  peer.endpoint.Observe(nullptr);
  peer.Deliver(peer.Request(kSendOnly, WirePeer::kPsn), 8);
  peer.Transmit();
  EXPECT_TRUE(recorder.seen.empty());
}

// --- Reports.

TEST(Reports, CoverRequesterAndResponder) {
  WirePeer peer;
  peer.Connect();
  EXPECT_EQ(peer.endpoint.QueuePairNumbers(),
            std::vector<uint32_t>{WirePeer::kQpn});
  QpReport report = peer.qp->Report();
  EXPECT_EQ(report.qpn, WirePeer::kQpn);
  EXPECT_EQ(report.type, QpType::kRc);
  EXPECT_EQ(report.state, QpState::kRts);
  EXPECT_EQ(report.dest_qpn, WirePeer::kPeerQpn);
  EXPECT_EQ(report.destination, peer.datagram.source);
  EXPECT_EQ(report.path_mtu, WirePeer::kMtu);
  EXPECT_EQ(report.expected_psn, WirePeer::kPsn);
  EXPECT_EQ(report.send_psn, peer.qp->attributes().sq_psn);
  EXPECT_EQ(report.unacked_psn, report.send_psn);
  EXPECT_EQ(report.in_flight, 0u);

  ASSERT_EQ(peer.PostReceive(1, {64}), 0);
  EXPECT_EQ(peer.qp->Report().recv_queued, 1u);
  peer.Deliver(peer.Request(kSendOnly, WirePeer::kPsn), 8);
  SendRequest request;
  request.opcode = SendOpcode::kSend;
  ASSERT_EQ(peer.qp->PostSend(request, peer.now), 0);
  ASSERT_EQ(peer.qp->PostSend(request, peer.now), 0);
  peer.Transmit();
  report = peer.qp->Report();
  EXPECT_EQ(report.recv_queued, 0u);
  EXPECT_EQ(report.expected_psn, WirePeer::kPsn + 1);
  EXPECT_EQ(report.send_psn, peer.qp->attributes().sq_psn + 2);
  EXPECT_EQ(report.unacked_psn, peer.qp->attributes().sq_psn);
  EXPECT_EQ(report.send_queued, 2u);
  EXPECT_GT(report.in_flight, 0u);
  EXPECT_GT(report.window, report.in_flight);
  EXPECT_EQ(report.counters.rx_packets, 1u);
}

TEST(Reports, CountersOutliveTheirQueuePairs) {
  WirePeer peer;
  peer.Connect();
  ASSERT_EQ(peer.PostReceive(1, {64}), 0);
  peer.Deliver(peer.Request(kSendOnly, WirePeer::kPsn), 8);
  EXPECT_EQ(peer.endpoint.retired().values, QpCounterTotals().values);
  QpCounterTotals before;
  before.Add(peer.qp->counters());
  EXPECT_NE(before.values, QpCounterTotals().values);
  peer.qp.reset();
  EXPECT_EQ(peer.endpoint.retired().values, before.values);
  EXPECT_TRUE(peer.endpoint.QueuePairNumbers().empty());
}

}  // namespace
}  // namespace transport
