// Gaps in what a responder receives, and packets that are buffered beyond them.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "transport/rc/out_of_order_packets.h"
#include "transport/testing/replay_fixture.h"
#include "transport/testing/wire_peer.h"

namespace transport {
namespace {

using enum wire::Operation;

TEST_F(ReplayTest, OneNakForAGap) {
  peer.Deliver(peer.Write(kWriteOnly, 100, 0, 0));
  for (uint32_t psn = 102; psn < 110; ++psn) {
    peer.Deliver(peer.Write(kWriteOnly, psn, 0, 0, true));
  }
  EXPECT_EQ(peer.Transmit(), "NAK sequence 101 msn 1");
  for (uint32_t psn = 110; psn < 120; ++psn) {
    peer.Deliver(peer.Write(kWriteOnly, psn, 0, 0, true));
    EXPECT_EQ(peer.Transmit(), "");
  }
  EXPECT_EQ(counters().out_of_order, 18u);
  EXPECT_EQ(counters().sequence_naks_sent, 1u);
}

// The peer probes with a packet that is buffered: it has not got the NAK.
TEST_F(ReplayTest, LostNakIsRepeatedForAProbe) {
  peer.Deliver(peer.Write(kWriteOnly, 101, 0, 0, true));
  EXPECT_EQ(peer.Transmit(), "NAK sequence 100 msn 0");
  peer.Deliver(peer.Write(kWriteOnly, 101, 0, 0));
  EXPECT_EQ(peer.Transmit(), "");
  peer.Deliver(peer.Write(kWriteOnly, 101, 0, 0, true));
  EXPECT_EQ(peer.Transmit(), "NAK sequence 100 msn 0");
}

// A packet that was retransmitted for a NAK arrived twice: it had only been
// late. The next gap is given some time, and fills before it is reported.
TEST_F(ReplayTest, EarlyNaksMakeTheNextOneWait) {
  peer.Deliver(peer.Write(kWriteOnly, 101, 0, 0));
  EXPECT_EQ(peer.Transmit(), "NAK sequence 100 msn 0");
  peer.Deliver(peer.Write(kWriteOnly, 100, 0, 0));
  EXPECT_EQ(peer.Transmit(), "ACK 101 msn 2");
  peer.Deliver(peer.Write(kWriteOnly, 100, 0, 0, true));
  EXPECT_EQ(peer.Transmit(), "ACK 101 msn 2");
  peer.Deliver(peer.Write(kWriteOnly, 103, 0, 0));
  EXPECT_EQ(peer.Transmit(), "");
  EXPECT_EQ(peer.endpoint.NextTimeout(), peer.now + 16 * kMicrosecond);
  peer.Deliver(peer.Write(kWriteOnly, 102, 0, 0));
  EXPECT_EQ(peer.Transmit(), "ACK 103 msn 4");
  EXPECT_EQ(counters().sequence_naks_sent, 1u);
  // A gap that does not fill is reported when the time has passed.
  peer.Deliver(peer.Write(kWriteOnly, 105, 0, 0));
  EXPECT_EQ(peer.Transmit(), "");
  peer.now += 16 * kMicrosecond;
  peer.endpoint.OnTimer(peer.now);
  EXPECT_EQ(peer.Transmit(), "NAK sequence 104 msn 4");
}

// How late a packet may be is measured in round trips, and a round trip by how
// long after the NAK the packet arrives again.
TEST_F(ReplayTest, TheWaitFollowsTheRoundTrip) {
  constexpr Time kRoundTrip = 40 * kMillisecond;
  uint32_t psn = 100;
  Time waits = 0;
  for (int i = 0; i < 40 && waits < kRoundTrip * 9 / 10; ++i, psn += 2) {
    peer.Deliver(peer.Write(kWriteOnly, psn + 1, 0, 0));
    if (peer.Transmit().empty()) {
      waits = peer.endpoint.NextTimeout() - peer.now;
      ASSERT_LE(waits, kRoundTrip);
      peer.now += waits;
      peer.endpoint.OnTimer(peer.now);
      peer.Transmit();
    }
    peer.Deliver(peer.Write(kWriteOnly, psn, 0, 0));
    peer.now += kRoundTrip;
    peer.Deliver(peer.Write(kWriteOnly, psn, 0, 0, true));
    peer.Transmit();
  }
  EXPECT_GE(waits, kRoundTrip * 9 / 10);
}

TEST_F(ReplayTest, BufferedPacketsWaitForTheirTurn) {
  peer.Deliver(peer.Write(kWriteOnly, 102, 8, 4, true), 4, 30);
  peer.Deliver(peer.Write(kWriteOnly, 101, 4, 4), 4, 20);
  EXPECT_EQ(peer.Transmit(), "NAK sequence 100 msn 0");
  EXPECT_EQ(Target(0, 12), Bytes(12));  // nothing beyond the gap is placed
  peer.Deliver(peer.Write(kWriteOnly, 100, 0, 4), 4, 10);
  EXPECT_EQ(Target(0, 4), WirePeer::Pattern(4, 10));
  EXPECT_EQ(Target(4, 4), WirePeer::Pattern(4, 20));
  EXPECT_EQ(Target(8, 4), WirePeer::Pattern(4, 30));
  EXPECT_EQ(peer.Transmit(), "ACK 102 msn 3");
}

TEST_F(ReplayTest, GapThatFillsBeforeTheNakIsSent) {
  peer.Deliver(peer.Write(kWriteOnly, 101, 0, 0));
  peer.Deliver(peer.Write(kWriteOnly, 100, 0, 0));
  EXPECT_EQ(peer.Transmit(), "ACK 101 msn 2");
  EXPECT_EQ(counters().sequence_naks_sent, 0u);
}

// Gaps at 100 and 102; 101 and 103 are buffered, and 100 is retransmitted.
class TwoGapsTest : public ReplayTest {
 protected:
  // How long packets are buffered while nothing happens.
  static constexpr Time kKept = 250 * kMillisecond;

  TwoGapsTest() {
    peer.Deliver(peer.Write(kWriteOnly, 101, 0, 0));
    peer.Deliver(peer.Write(kWriteOnly, 103, 0, 0));
    EXPECT_EQ(peer.Transmit(), "NAK sequence 100 msn 0");
    EXPECT_EQ(peer.endpoint.NextTimeout(), peer.now + kKept);
    peer.Deliver(peer.Write(kWriteOnly, 100, 0, 0));
    EXPECT_EQ(peer.Transmit(), "ACK 101 msn 2");
    EXPECT_EQ(peer.endpoint.NextTimeout(), peer.now + 50 * kMicrosecond);
  }
};

TEST_F(TwoGapsTest, PeerGoesBackToTheFirst) {
  // Everything is retransmitted; no NAK is needed.
  peer.Deliver(peer.Write(kWriteOnly, 101, 0, 0));
  peer.Deliver(peer.Write(kWriteOnly, 102, 0, 0));
  EXPECT_EQ(peer.endpoint.NextTimeout(), kNever);
  EXPECT_EQ(peer.Transmit(), "ACK 103 msn 4");
  peer.Deliver(peer.Write(kWriteOnly, 103, 0, 0));
  EXPECT_EQ(counters().sequence_naks_sent, 1u);
}

TEST_F(TwoGapsTest, PeerContinues) {
  peer.Deliver(peer.Write(kWriteOnly, 104, 0, 0, true));
  EXPECT_EQ(peer.Transmit(), "NAK sequence 102 msn 2");
  EXPECT_EQ(peer.endpoint.NextTimeout(), peer.now + kKept);
  peer.Deliver(peer.Write(kWriteOnly, 105, 0, 0, true));
  EXPECT_EQ(peer.Transmit(), "");
  peer.Deliver(peer.Write(kWriteOnly, 102, 0, 0));
  EXPECT_EQ(peer.Transmit(), "ACK 105 msn 6");
}

TEST_F(TwoGapsTest, SecondIsLostAgain) {
  peer.Deliver(peer.Write(kWriteOnly, 103, 0, 0));  // buffered already
  EXPECT_EQ(peer.Transmit(), "NAK sequence 102 msn 2");
}

TEST_F(TwoGapsTest, PeerIsSilent) {
  peer.now += 50 * kMicrosecond - 1;
  peer.endpoint.OnTimer(peer.now);
  EXPECT_EQ(peer.Transmit(), "");
  peer.now += 1;
  peer.endpoint.OnTimer(peer.now);
  EXPECT_EQ(peer.Transmit(), "NAK sequence 102 msn 2");
  EXPECT_EQ(peer.endpoint.NextTimeout(), peer.now + kKept);
}

TEST_F(TwoGapsTest, ErrorStopsTheTimer) {
  peer.Modify(QpState::kErr);
  EXPECT_EQ(peer.endpoint.NextTimeout(), kNever);
  EXPECT_EQ(peer.Transmit(), "");
}

// A packet that the peer never sent, far ahead: it may cost a few NAKs, but not
// one for each packet until its PSN is reached.
TEST_F(ReplayTest, StrayPacketAhead) {
  for (uint32_t ahead : {5000u, 100000u}) {
    peer.Deliver(peer.Write(kWriteOnly, 100 + ahead, 0, 0));
  }
  uint32_t psn = 100;
  for (; psn < 2000; ++psn) {
    peer.Deliver(peer.Write(kWriteOnly, psn, 0, 0, true));
    peer.Transmit();
    peer.now += kMillisecond;
    peer.endpoint.OnTimer(peer.now);
    peer.Transmit();
  }
  EXPECT_LE(counters().sequence_naks_sent, 66u);
  EXPECT_EQ(peer.endpoint.NextTimeout(), kNever);
  const uint64_t before = counters().sequence_naks_sent;
  for (; psn < 6000; ++psn) {
    peer.Deliver(peer.Write(kWriteOnly, psn, 0, 0, true));
    EXPECT_EQ(peer.Transmit(), "ACK " + std::to_string(psn) + " msn " +
                                   std::to_string(psn - 99));
  }
  EXPECT_EQ(counters().sequence_naks_sent, before);
}

TEST_F(ReplayTest, CopiesOfOutOfOrderPackets) {
  peer.Deliver(peer.Write(kWriteOnly, 101, 0, 4), 4, 1);
  peer.Deliver(peer.Write(kWriteOnly, 101, 0, 4), 4, 1);
  peer.Deliver(peer.Write(kWriteOnly, 100, 0, 4), 4, 1);
  peer.Deliver(peer.Write(kWriteOnly, 101, 0, 4), 4, 1);
  EXPECT_EQ(peer.Transmit(), "ACK 101 msn 2");
}

TEST_F(ReplayTest, NeverANakForADuplicate) {
  peer.Deliver(peer.Write(kWriteOnly, 100, 0, 0, true));
  peer.Transmit();
  peer.Deliver(peer.Write(kWriteOnly, 102, 0, 0, true));
  EXPECT_EQ(peer.Transmit(), "NAK sequence 101 msn 1");
  peer.Deliver(peer.Write(kWriteOnly, 100, 0, 0, true));
  EXPECT_EQ(peer.Transmit(), "ACK 100 msn 1");
  // A duplicate does not cancel a NAK that is due, either.
  peer.Deliver(peer.Write(kWriteOnly, 101, 0, 0, true));
  peer.Transmit();
  peer.Deliver(peer.Write(kWriteOnly, 104, 0, 0, true));
  peer.Deliver(peer.Write(kWriteOnly, 100, 0, 0, true));
  EXPECT_EQ(peer.Transmit(), "NAK sequence 103 msn 3");
}

TEST_F(ReplayTest, MessageAcrossAGap) {
  peer.PostReceive(7, {1000});
  peer.Deliver(peer.Request(kSendFirst, 100), 256, 1);
  peer.Deliver(peer.Request(kSendLast, 102, true), 4, 3);
  EXPECT_EQ(peer.Transmit(), "NAK sequence 101 msn 0");
  EXPECT_EQ(peer.TakeReceives(), "");
  peer.Deliver(peer.Request(kSendMiddle, 101), 256, 2);
  EXPECT_EQ(peer.TakeReceives(), "7 ok 516");
  EXPECT_EQ(Target(512, 4), WirePeer::Pattern(4, 3));
  EXPECT_EQ(peer.Transmit(), "ACK 102 msn 1");
}

TEST_F(ReplayTest, BufferedReadsAndAtomics) {
  peer.Deliver(peer.Read(101, 0, 8));
  peer.Deliver(peer.Atomic(kFetchAdd, 102, 0, 4));
  EXPECT_EQ(peer.Transmit(), "NAK sequence 100 msn 0");
  EXPECT_EQ(Word(0), 0u);
  peer.Deliver(peer.Write(kWriteOnly, 100, 0, 0, true));
  EXPECT_EQ(Word(0), 4u);
  EXPECT_EQ(peer.Transmit(), "READ_ONLY 101 msn 2 [8]; ATOMIC 102 msn 3 = 0");
}

TEST_F(ReplayTest, NoReceiveForABufferedSend) {
  peer.PostReceive(7, {8});
  for (uint32_t psn = 101; psn < 104; ++psn) {
    peer.Deliver(peer.Request(kSendOnly, psn, true), 8);
  }
  peer.Transmit();
  peer.Deliver(peer.Write(kWriteOnly, 100, 0, 0, true));
  EXPECT_EQ(peer.TakeReceives(), "7 ok 8");
  EXPECT_EQ(peer.Transmit(), "RNR 12 102 msn 2");
  peer.PostReceive(8, {8});
  peer.PostReceive(9, {8});
  peer.Deliver(peer.Request(kSendOnly, 102, true), 8);
  EXPECT_EQ(peer.TakeReceives(), "8 ok 8; 9 ok 8");
  EXPECT_EQ(peer.Transmit(), "ACK 103 msn 4");
}

// Packets that are retransmitted behind a request without a receive are
// buffered already. The last one asks for an ACK, but the peer has got its
// answer: RNR.
TEST_F(ReplayTest, NoReceiveIsNotReportedAsAGap) {
  const auto deliver = [&](uint32_t first) {
    for (uint32_t psn = first; psn < 103; ++psn) {
      peer.Deliver(peer.Request(kSendOnly, psn, psn == 102), 8);
    }
  };
  deliver(101);
  EXPECT_EQ(peer.Transmit(), "NAK sequence 100 msn 0");
  deliver(100);
  EXPECT_EQ(peer.Transmit(), "RNR 12 100 msn 0");
  deliver(101);  // the same flight, in a separate burst
  EXPECT_EQ(peer.Transmit(), "");
  for (int i = 7; i < 10; ++i) peer.PostReceive(i, {8});
  deliver(100);
  EXPECT_EQ(peer.TakeReceives(), "7 ok 8; 8 ok 8; 9 ok 8");
  EXPECT_EQ(peer.Transmit(), "ACK 102 msn 3");
  EXPECT_EQ(counters().sequence_naks_sent, 1u);
  EXPECT_EQ(counters().rnr_naks_sent, 1u);
}

TEST_F(ReplayTest, InvalidBufferedPacket) {
  peer.Deliver(peer.Request(kSendLast, 101, true), 8);
  peer.Deliver(peer.Write(kWriteOnly, 102, 0, 4), 4);
  peer.Transmit();
  // It may have been forged by an attacker who did not know which PSN is next:
  // the peer is asked again.
  peer.Deliver(peer.Write(kWriteOnly, 100, 0, 0, true));
  EXPECT_EQ(peer.Transmit(), "NAK sequence 101 msn 1");
  EXPECT_EQ(Target(0, 4), Bytes(4));
  // It was not: the peer sends the same packet again, now in order.
  peer.Deliver(peer.Request(kSendLast, 101, true), 8);
  EXPECT_EQ(peer.qp->state(), QpState::kErr);
  EXPECT_EQ(peer.Transmit(), "NAK invalid-request 101 msn 1");
  EXPECT_EQ(Target(0, 4), Bytes(4));
}

TEST_F(ReplayTest, ReservedBufferedPacket) {
  peer.Deliver(peer.Request(kReserved1e, 101, true), 8);
  EXPECT_EQ(peer.Transmit(), "NAK sequence 100 msn 0");
  peer.Deliver(peer.Write(kWriteOnly, 100, 0, 0, true));
  EXPECT_EQ(peer.Transmit(), "NAK sequence 101 msn 1");
  EXPECT_EQ(peer.qp->state(), QpState::kRts);
  peer.Deliver(peer.Request(kReserved1e, 101, true), 8);
  EXPECT_EQ(peer.Transmit(), "NAK invalid-request 101 msn 1");
  EXPECT_EQ(peer.qp->state(), QpState::kErr);
}

TEST_F(ReplayTest, ForgedBufferedPacketsDoNoHarm) {
  peer.Deliver(peer.Request(kSendLast, 101, true), 8);
  peer.Deliver(peer.Write(kWriteOnly, 100, 0, 4, true), 4);
  EXPECT_EQ(peer.Transmit(), "NAK sequence 101 msn 1");
  peer.Deliver(peer.Write(kWriteOnly, 101, 4, 4, true), 4);
  EXPECT_EQ(peer.Transmit(), "ACK 101 msn 2");
}

// A buffered packet that is too long for the receive does no harm either: the
// receive stays for the next packet in order.
TEST_F(ReplayTest, BufferedSendTooLongForItsReceive) {
  peer.PostReceive(7, {256, 4});
  peer.PostReceive(8, {4});
  peer.Deliver(peer.Request(kSendOnly, 102, true), 8);
  peer.Deliver(peer.Request(kSendMiddle, 101), 256);
  peer.Deliver(peer.Request(kSendFirst, 100), 256);
  EXPECT_EQ(peer.Transmit(), "NAK sequence 101 msn 0");
  peer.Deliver(peer.Request(kSendOnly, 102, true), 8);
  peer.Deliver(peer.Request(kSendLast, 101), 4);
  EXPECT_EQ(peer.TakeReceives(), "7 ok 260");
  EXPECT_EQ(peer.Transmit(), "NAK sequence 102 msn 1");
  peer.Deliver(peer.Request(kSendOnly, 102, true), 4);
  EXPECT_EQ(peer.TakeReceives(), "8 ok 4");
  EXPECT_EQ(peer.Transmit(), "ACK 102 msn 2");
}

TEST_F(ReplayTest, MoreThanCanBeBuffered) {
  // 512 packets at most; the rest is dropped and retransmitted.
  for (uint32_t psn = 101; psn < 101 + 600; ++psn) {
    peer.Deliver(peer.Write(kWriteOnly, psn, 0, 4), 4);
  }
  EXPECT_EQ(peer.Transmit(), "NAK sequence 100 msn 0");
  peer.Deliver(peer.Write(kWriteOnly, 100, 0, 4), 4);
  EXPECT_EQ(peer.Transmit(), "ACK 612 msn 513");
}

TEST_F(ReplayTest, GapAcrossTheEndOfPsns) {
  ASSERT_EQ(peer.Modify(QpState::kReset), 0);
  peer.attributes.rq_psn = 0xfffffe;
  peer.Connect();
  peer.Deliver(peer.Write(kWriteOnly, 0xffffff, 0, 0));
  peer.Deliver(peer.Write(kWriteOnly, 1, 0, 0));
  EXPECT_EQ(peer.Transmit(), "NAK sequence 16777214 msn 0");
  peer.Deliver(peer.Write(kWriteOnly, 0xfffffe, 0, 0));
  EXPECT_EQ(peer.Transmit(), "ACK 16777215 msn 2");
  peer.Deliver(peer.Read(0, 0, 8));
  EXPECT_EQ(peer.Transmit(), "READ_ONLY 0 msn 3 [8]; ACK 1 msn 4");
  peer.Deliver(peer.Write(kWriteOnly, 0xffffff, 0, 0, true));
  EXPECT_EQ(peer.Transmit(), "ACK 16777215 msn 2");
}

}  // namespace
}  // namespace transport
