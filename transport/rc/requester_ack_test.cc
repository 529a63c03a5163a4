// When a requester asks for an ACK, and what an ACK's credits let it send.
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "transport/testing/requester_peer.h"

namespace transport {
namespace {

TEST(RequesterAckTest, AsksForAnAckAtTheEndOfWhatItCanSend) {
  RequesterPeer peer;
  peer.Connect();
  for (int i = 0; i < 40; ++i) peer.Send(i, 1);
  peer.Transmit();
  ASSERT_EQ(peer.sent.size(), 40u);
  std::vector<int> asked;
  for (int i = 0; i < 40; ++i) {
    if (peer.sent[i].ack_req) asked.push_back(i);
  }
  EXPECT_EQ(asked, (std::vector<int>{15, 31, 39}));
}

// While many messages follow, the ACK of a later one completes a message: the
// peer need not send one for each.
TEST(RequesterAckTest, LongMessagesAskForAnAckWhereFewFollow) {
  RequesterPeer::Options options;
  options.capacity.max_send_wr = 64;
  RequesterPeer peer(options);
  peer.Connect();
  constexpr int kMessages = 20;
  constexpr int kPackets = 2;  // of 256 bytes
  for (int i = 0; i < kMessages; ++i) peer.Write(i, 512);
  peer.Transmit();
  ASSERT_EQ(peer.sent.size(), size_t{kMessages * kPackets});
  std::vector<int> asked;
  for (int i = 0; i < kMessages * kPackets; ++i) {
    if (!peer.sent[i].ack_req) continue;
    EXPECT_EQ(i % kPackets, kPackets - 1);
    asked.push_back(i / kPackets);
  }
  EXPECT_EQ(asked, (std::vector<int>{12, 13, 14, 15, 16, 17, 18, 19}));
}

TEST(RequesterAckTest, AsksForAnAckEveryQuarterOfTheWindow) {
  RequesterPeer peer;
  peer.Connect();
  peer.Write(1, 100 * 1024);
  peer.Transmit();
  // 128 KiB of window hold 256 packets, at 512 bytes each.
  ASSERT_EQ(peer.sent.size(), 256u);
  int asked = 0;
  uint32_t since = 0;
  for (const RequesterPeer::Sent& packet : peer.sent) {
    ++since;
    if (!packet.ack_req) continue;
    EXPECT_LE(since * 256, 33u * 1024);
    since = 0;
    ++asked;
  }
  EXPECT_EQ(since, 0u);
  EXPECT_EQ(asked, 2);
}

TEST(RequesterAckTest, CreditsOfAnOlderAckAreOld) {
  RequesterPeer peer;
  peer.Connect();
  peer.Read(1, 1);
  peer.Send(2, 1);
  peer.Send(3, 1);
  peer.Transmit();
  peer.Ack(102, wire::kCreditNone, 3);
  peer.Ack(101, /*credit_code=*/0, /*msn=*/2);  // late
  peer.Transmit();
  peer.Send(4, 1);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 103 A [1]");
}

TEST(RequesterAckTest, CreditsHoldBackMessagesThatTakeReceives) {
  RequesterPeer peer;
  peer.Connect();
  peer.Send(1, 1);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 100 A [1]");
  peer.Ack(100, /*credit_code=*/2, /*msn=*/1);  // two credits: up to message 3
  for (int i = 2; i <= 5; ++i) peer.Send(i, 1);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 101 [1]; SEND_ONLY 102 A [1]");
  peer.Ack(102, /*credit_code=*/2, /*msn=*/2);  // up to 4
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 103 A [1]");
  peer.Ack(103, /*credit_code=*/0, /*msn=*/4);
  // No credit at all still permits one.
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 104 A [1]");
  peer.Send(6, 1);
  EXPECT_EQ(peer.Transmit(), "");
  peer.Ack(102, wire::kCreditNone, 4);  // stale
  EXPECT_EQ(peer.Transmit(), "");
  peer.Ack(104, /*credit_code=*/0, /*msn=*/5);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 105 A [1]");
  peer.Send(7, 1);
  EXPECT_EQ(peer.Transmit(), "");
  peer.Ack(105, /*credit_code=*/0, /*msn=*/6);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 106 A [1]");
  peer.Ack(106, /*credit_code=*/0, /*msn=*/7);
  // The last ACK is retransmitted with more credits.
  peer.Ack(106, /*credit_code=*/2, /*msn=*/7);
  peer.Send(8, 1);
  peer.Send(9, 1);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 107 [1]; SEND_ONLY 108 A [1]");
}

TEST(RequesterAckTest, WithoutCreditALongMessageTriesItsFirstPacket) {
  RequesterPeer peer;
  peer.Connect();
  peer.Send(1, 1);
  peer.Transmit();
  peer.Ack(100, /*credit_code=*/0, /*msn=*/1);
  peer.Send(2, 600);
  EXPECT_EQ(peer.Transmit(), "SEND_FIRST 101 A [256]");
  peer.Ack(101, /*credit_code=*/0, /*msn=*/1);
  EXPECT_EQ(peer.Transmit(), "SEND_MIDDLE 102 [256]; SEND_LAST 103 A [88]");
}

TEST(RequesterAckTest, WritesAndReadsNeedNoCredit) {
  RequesterPeer peer;
  peer.Connect();
  peer.Send(1, 1);
  peer.Transmit();
  peer.Ack(100, /*credit_code=*/0, /*msn=*/1);
  peer.Write(2, 1);
  peer.Write(3, 1);
  peer.Read(4, 1);
  EXPECT_EQ(peer.Transmit(),
            "WRITE_ONLY 101 va 0 len 1 [1]; WRITE_ONLY 102 va 0 len 1 [1]; "
            "READ_REQUEST 103 A va 0 len 1");
}

}  // namespace
}  // namespace transport
