// Packets in the middle of a message, which are sent as one run.
#include "gtest/gtest.h"
#include "transport/testing/requester_peer.h"

namespace transport {
namespace {

constexpr uint32_t kSignaled = kSendSignaled;

// 102 packets of 1280 bytes, as Path counts.
TEST(RequesterTest, ARunKeepsToTheWindow) {
  RequesterPeer peer;
  peer.attributes.path_mtu = 1024;
  peer.Connect();
  peer.Write(1, 200 * 1024);
  peer.Transmit();
  EXPECT_EQ(peer.sent.size(), 102u);
  EXPECT_EQ(peer.in_flight(), 102 * (1024 + Path::kPacketOverhead));
  EXPECT_TRUE(peer.sent.back().ack_req);
  peer.Ack(100);
  peer.Transmit();  // slow start: one for the one that left, and one more
  EXPECT_LE(peer.in_flight(), peer.path().window());
  EXPECT_GT(peer.in_flight() + 1024 + Path::kPacketOverhead,
            peer.path().window());
}

TEST(RequesterTest, ARunAsksForAnAckWhereASinglePacketWould) {
  RequesterPeer peer;
  peer.Connect();
  peer.Write(1, 100, 0);
  peer.Write(2, 512 * 256);
  peer.Transmit();
  // Each quarter of a window of 128 KiB asks; 100 bytes of the first are
  // message 1's.
  std::vector<uint32_t> asking;
  for (const RequesterPeer::Sent& packet : peer.sent) {
    if (packet.ack_req) asking.push_back(packet.psn - RequesterPeer::kPsn);
  }
  EXPECT_EQ(peer.sent.size(), 256u);
  EXPECT_EQ(asking, (std::vector<uint32_t>{128, 255}));
}

TEST(RequesterTest, ARunIsTimedByThePacketThatAsks) {
  RequesterPeer peer;
  peer.Connect();
  peer.Write(1, 256 * 256);
  peer.Transmit();
  ASSERT_TRUE(peer.sent[127].ack_req);
  peer.now += kMillisecond;
  peer.Ack(RequesterPeer::kPsn + 126);
  EXPECT_EQ(peer.path().smoothed_rtt(), 0);
  peer.now += kMillisecond;
  peer.Ack(RequesterPeer::kPsn + 127);
  EXPECT_EQ(peer.path().smoothed_rtt(), 2 * kMillisecond);
}

TEST(RequesterTest, ARunDoesNotPutOffAnUrgentAckRequest) {
  RequesterPeer peer;
  peer.Connect();
  peer.Write(1, 1000 * 256);
  peer.Transmit();
  ASSERT_EQ(peer.sent.size(), 256u);
  peer.Nak(RequesterPeer::kPsn + 1);
  peer.Ack(RequesterPeer::kPsn + 255);  // nothing is missing after all
  peer.Transmit();
  ASSERT_GT(peer.sent.size(), 2u);
  EXPECT_EQ(peer.sent[0].psn, RequesterPeer::kPsn + 256);
  EXPECT_TRUE(peer.sent[0].ack_req);
  EXPECT_FALSE(peer.sent[1].ack_req);
  EXPECT_EQ(peer.qp->counters().retransmitted, 0u);
}

TEST(RequesterTest, ARunFillsBursts) {
  RequesterPeer::Options options;
  options.max_segments = 4;
  RequesterPeer peer(options);
  peer.Connect();
  peer.Send(1, 11 * 256);
  peer.Transmit();
  EXPECT_EQ(peer.sent.size(), 11u);
  EXPECT_EQ(peer.bursts, 3);
  // The second packet is shorter by a RETH, and ends the first burst.
  peer.Write(2, 11 * 256);
  peer.Transmit();
  EXPECT_EQ(peer.sent.size(), 11u);
  EXPECT_EQ(peer.bursts, 4);
  EXPECT_EQ(peer.payload, peer.Bytes(0, 11 * 256));
}

// Messages of one packet follow: every 16th of them asks.
TEST(RequesterTest, ARunCountsAsItsPackets) {
  RequesterPeer peer;
  peer.Connect();
  peer.Write(0, 20 * 256);
  for (int i = 1; i <= 20; ++i) peer.Write(i, 1);
  peer.Transmit();
  std::vector<uint32_t> asking;
  for (const RequesterPeer::Sent& packet : peer.sent) {
    if (packet.ack_req) asking.push_back(packet.psn - RequesterPeer::kPsn);
  }
  EXPECT_EQ(asking, (std::vector<uint32_t>{20, 36, 39}));
}

// The packets of a run before the one whose memory failed are sent: they take
// PSNs, are in flight, and their ACK counts.
TEST(RequesterTest, ARunThatFailsInItsMiddle) {
  for (const uint32_t mtu : {256, 4096}) {
    RequesterPeer peer;
    peer.attributes.path_mtu = mtu;
    peer.Connect();
    peer.Send(1, mtu, kSignaled);
    ASSERT_EQ(peer.Post({.wr_id = 2, .opcode = SendOpcode::kSend},
                        {peer.Local(0, 4 * mtu + 10), {0, 4 * mtu, 0xbad}}),
              0);
    const std::string size = " [" + std::to_string(mtu) + "]";
    EXPECT_EQ(peer.Transmit(),
              "SEND_ONLY 100" + size + "; SEND_FIRST 101" + size +
                  "; SEND_MIDDLE 102" + size + "; SEND_MIDDLE 103" + size +
                  "; SEND_MIDDLE 104" + size + "; SEND_ONLY 100 A" + size);
    EXPECT_EQ(peer.qp->counters().tx_packets, 6u);
    EXPECT_EQ(peer.qp->counters().retransmitted, 1u);
    EXPECT_EQ(peer.in_flight(), 5 * (mtu + Path::kPacketOverhead));
    peer.Ack(104);
    EXPECT_EQ(peer.qp->counters().dropped_window, 0u);
    EXPECT_EQ(peer.Completions(), "1 ok; 2 status 4");
    EXPECT_EQ(peer.in_flight(), 0u);
  }
}

// A replay goes packet by packet.
TEST(RequesterTest, AReplayedMessageIsCountedPacketByPacket) {
  RequesterPeer peer;
  peer.Connect();
  peer.Write(1, 20 * 256);
  peer.Transmit();
  ASSERT_EQ(peer.sent.size(), 20u);
  peer.Nak(RequesterPeer::kPsn + 5);
  peer.Transmit();
  EXPECT_EQ(peer.sent.size(), 15u);
  EXPECT_TRUE(peer.sent.front().ack_req);
  EXPECT_EQ(peer.qp->counters().retransmitted, 15u);
}

}  // namespace
}  // namespace transport
