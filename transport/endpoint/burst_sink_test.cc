// Sinks that refuse a flow, and bursts and batches without ICRC.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "transport/endpoint/endpoint.h"
#include "transport/testing/endpoint_fixture.h"

namespace transport {
namespace {

using enum wire::Operation;
using Bytes = std::vector<uint8_t>;

class ChoosySink final : public BurstSink {
 public:
  Burst* Begin(const Flow& flow) override {
    if (refuses) return nullptr;
    burst_.Begin(&flow);
    return &burst_;
  }
  bool only_that_flow() const override { return only_that_flow_; }

  bool refuses = true;
  bool only_that_flow_ = true;

 private:
  std::vector<uint8_t> buffer_ = std::vector<uint8_t>(65507);
  Burst burst_{buffer_, 16};
};

TEST_F(EndpointTest, ARefusedFlowWaitsForRoom) {
  ChoosySink sink;
  peer.Deliver(peer.Write(kWriteOnly, WirePeer::kPsn, 0, 8, true), 8);
  ASSERT_TRUE(peer.endpoint.HasTransmit());
  EXPECT_EQ(peer.endpoint.PollTransmit(peer.now, &sink), nullptr);
  EXPECT_FALSE(peer.endpoint.HasTransmit());
  // After another packet the queue pair has something to send again.
  peer.Deliver(peer.Write(kWriteOnly, WirePeer::kPsn + 1, 0, 8, true), 8);
  ASSERT_TRUE(peer.endpoint.HasTransmit());
  EXPECT_EQ(peer.endpoint.PollTransmit(peer.now, &sink), nullptr);
  EXPECT_FALSE(peer.endpoint.HasTransmit());
  sink.refuses = false;
  EXPECT_EQ(peer.endpoint.PollTransmit(peer.now, &sink), nullptr);
  peer.endpoint.OnRoom(peer.now);
  EXPECT_EQ(peer.Transmit(), "ACK 101 msn 2");
  peer.endpoint.OnRoom(peer.now);
  EXPECT_FALSE(peer.endpoint.HasTransmit());
}

// The last packets of a queue pair are sent this way before it is destroyed.
TEST_F(EndpointTest, ARefusedFlowMayBeSentOtherwise) {
  ChoosySink sink;
  ChoosySink other;
  other.refuses = false;
  peer.Deliver(peer.Write(kWriteOnly, WirePeer::kPsn, 0, 8, true), 8);
  EXPECT_EQ(peer.endpoint.PollTransmit(peer.now, &sink), nullptr);
  const Burst* const burst =
      peer.endpoint.PollTransmitOf(peer.qp.get(), peer.now, &other);
  ASSERT_NE(burst, nullptr);
  EXPECT_EQ(burst->segments(), 1);
  EXPECT_EQ(peer.endpoint.PollTransmitOf(peer.qp.get(), peer.now, &other),
            nullptr);
  peer.endpoint.OnRoom(peer.now);
  EXPECT_FALSE(peer.endpoint.HasTransmit());
}

// Without only_that_flow(), the queue pair keeps its turn.
TEST_F(EndpointTest, ASinkWithoutABurstKeepsTheTurn) {
  ChoosySink sink;
  sink.only_that_flow_ = false;
  peer.Deliver(peer.Write(kWriteOnly, WirePeer::kPsn, 0, 8, true), 8);
  EXPECT_EQ(peer.endpoint.PollTransmit(peer.now, &sink), nullptr);
  EXPECT_TRUE(peer.endpoint.HasTransmit());
  EXPECT_EQ(peer.Transmit(), "ACK 100 msn 1");
}

TEST_F(EndpointTest, AQueuePairMayBeDestroyedWhileItsFlowIsRefused) {
  ChoosySink sink;
  peer.Deliver(peer.Write(kWriteOnly, WirePeer::kPsn, 0, 8, true), 8);
  EXPECT_EQ(peer.endpoint.PollTransmit(peer.now, &sink), nullptr);
  peer.qp.reset();
  peer.endpoint.OnRoom(peer.now);
  EXPECT_FALSE(peer.endpoint.HasTransmit());
}

// A burst with ICRCs is read by the thread that fills it; one without is not.
TEST_F(EndpointTest, PayloadIsStreamedIntoABurstWithoutIcrcs) {
  class Sink final : public BurstSink {
   public:
    explicit Sink(bool has_icrc) {
      if (!has_icrc) burst_ = Burst::WithoutIcrc(buffer_, 16);
    }
    Burst* Begin(const Flow& flow) override {
      burst_.Begin(&flow);
      return &burst_;
    }

   private:
    std::vector<uint8_t> buffer_ = std::vector<uint8_t>(65507);
    Burst burst_{buffer_, 16};
  };
  const std::vector<Sge> pieces = {{WirePeer::kVa, 20, peer.target->lkey},
                                   {WirePeer::kVa + 64, 30, peer.target->lkey}};
  uint32_t psn = WirePeer::kPsn;
  for (const bool has_icrc : {true, false}) {
    Sink sink(has_icrc);
    const size_t before = peer.memory.streamed();
    const auto transmit = [&] {
      while (peer.endpoint.PollTransmit(peer.now, &sink) != nullptr) {
      }
      return peer.memory.streamed() - before;
    };
    peer.Deliver(peer.Read(psn++, 0, 8));
    EXPECT_EQ(transmit(), has_icrc ? 0u : 8u);
    // The last packet of a queue, whose ICRC is not computed with the copy; and
    // a packet of two pieces.
    SendRequest request;
    request.opcode = SendOpcode::kSend;
    request.sges = pieces;
    ASSERT_EQ(peer.qp->PostSend(request, peer.now), 0);
    EXPECT_EQ(transmit(), has_icrc ? 0u : 58u);
  }
}

TEST_F(EndpointTest, ABatchWithoutIcrcIsNotVerified) {
  Bytes packet =
      peer.Build(peer.Write(kWriteOnly, WirePeer::kPsn, 0, 8, true), 8);
  std::fill(packet.end() - 4, packet.end(), 0);
  GroBatch batch;
  batch.bytes = packet;
  batch.segment_size = packet.size();
  batch.source = peer.datagram.source;
  batch.destination = peer.datagram.destination;
  batch.source_port = peer.datagram.source_port;
  peer.endpoint.OnGroBatch(batch, peer.now, nullptr);
  EXPECT_EQ(dropped(Disposition::kBadIcrc), 1u);
  EXPECT_EQ(peer.target->bytes[0], 0);
  batch.has_icrc = false;
  peer.endpoint.OnGroBatch(batch, peer.now, nullptr);
  EXPECT_EQ(dropped(Disposition::kBadIcrc), 1u);
  EXPECT_EQ(peer.target->bytes[0], 1);
  EXPECT_EQ(peer.Transmit(), "ACK 100 msn 1");
  // All other checks are made.
  batch.source = *wire::IpAddress::Parse("10.0.0.77");
  peer.endpoint.OnGroBatch(batch, peer.now, nullptr);
  EXPECT_EQ(peer.qp->counters().rx_packets, 1u);
}

}  // namespace
}  // namespace transport
