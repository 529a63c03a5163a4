// Duplicates, gaps, and packets that are buffered beyond a gap.
#include <cstring>

#include "gtest/gtest.h"
#include "transport/rc/out_of_order_packets.h"
#include "transport/testing/wire_peer.h"

namespace transport {
namespace {

using enum wire::Operation;
using Bytes = std::vector<uint8_t>;

class ReplayTest : public ::testing::Test {
 protected:
  ReplayTest() { peer.Connect(); }

  Bytes Target(size_t offset, size_t bytes) const {
    const auto from = peer.target->bytes.begin() + offset;
    return Bytes(from, from + bytes);
  }
  uint64_t Word(size_t offset) const {
    uint64_t word;
    std::memcpy(&word, peer.target->bytes.data() + offset, 8);
    return word;
  }
  const QpCounters& counters() const { return peer.qp->counters(); }

  WirePeer peer;
};

// --- Duplicates.

TEST_F(ReplayTest, DuplicateSendIsAcknowledgedAgain) {
  peer.PostReceive(7, {8});
  peer.Deliver(peer.Request(kSendOnly, 100, true), 8);
  peer.Deliver(peer.Write(kWriteOnly, 101, 0, 0, true));
  EXPECT_EQ(peer.Transmit(), "ACK 101 msn 2");
  peer.Deliver(peer.Request(kSendOnly, 100, true), 8);
  EXPECT_EQ(peer.TakeReceives(), "7 ok 8");
  EXPECT_EQ(peer.Transmit(), "ACK 101 msn 2");
  EXPECT_EQ(counters().duplicates, 1u);
}

TEST_F(ReplayTest, DuplicateWriteIsNotExecuted) {
  peer.Deliver(peer.Write(kWriteOnly, 100, 0, 4, true), 4, 1);
  peer.Deliver(peer.Write(kWriteOnly, 101, 0, 4, true), 4, 9);
  peer.Deliver(peer.Write(kWriteOnly, 100, 0, 4, true), 4, 1);
  EXPECT_EQ(Target(0, 4), WirePeer::Pattern(4, 9));
  EXPECT_EQ(peer.Transmit(), "ACK 101 msn 2");
}

// An operation of a peer is counted once, when it has been executed.
TEST(CompletionCounterTest, DuplicatesAreNotCounted) {
  WirePeer peer;
  const auto writes =
      std::make_shared<CompletionCounter>(CompletionCounter::Unit::kRequests);
  const auto read_bytes =
      std::make_shared<CompletionCounter>(CompletionCounter::Unit::kBytes);
  const auto bit = [](CountedCompletion kind) {
    return 1u << static_cast<int>(kind);
  };
  ASSERT_EQ(
      peer.qp->AttachCounter(writes, bit(CountedCompletion::kRemoteWrite)), 0);
  ASSERT_EQ(
      peer.qp->AttachCounter(read_bytes, bit(CountedCompletion::kRemoteRead)),
      0);
  peer.Connect();
  peer.Deliver(peer.Write(kWriteFirst, 100, 0, 260, true), 256);
  EXPECT_EQ(writes->successes, 0u);
  peer.Deliver(peer.Request(kWriteLast, 101, true), 4);
  EXPECT_EQ(writes->successes, 1u);
  peer.Deliver(peer.Read(102, 0, 257));
  EXPECT_EQ(read_bytes->successes, 0u);
  peer.Transmit();
  EXPECT_EQ(read_bytes->successes, 257u);
  peer.Deliver(peer.Write(kWriteFirst, 100, 0, 260, true), 256);
  peer.Deliver(peer.Request(kWriteLast, 101, true), 4);
  peer.Deliver(peer.Read(102, 0, 257));
  peer.Transmit();
  EXPECT_EQ(writes->successes, 1u);
  EXPECT_EQ(read_bytes->successes, 257u);
  EXPECT_EQ(writes->errors, 0u);
}

TEST_F(ReplayTest, DuplicateAckStopsBeforeTheNextRead) {
  peer.Deliver(peer.Write(kWriteOnly, 100, 0, 0, true));
  peer.Deliver(peer.Write(kWriteOnly, 101, 0, 0, true));
  peer.Deliver(peer.Read(102, 0, 257));
  peer.Deliver(peer.Write(kWriteOnly, 104, 0, 0, true));
  EXPECT_EQ(peer.Transmit(),
            "READ_FIRST 102 msn 3 [256]; READ_LAST 103 msn 3 [1] | "
            "ACK 104 msn 4");
  // The READ's response may be on its way: an ACK of 104 would tell the
  // requester that it was lost.
  peer.Deliver(peer.Write(kWriteOnly, 100, 0, 0, true));
  EXPECT_EQ(peer.Transmit(), "ACK 101 msn 2");
  peer.Deliver(peer.Write(kWriteOnly, 104, 0, 0, true));
  EXPECT_EQ(peer.Transmit(), "ACK 104 msn 4");
}

TEST_F(ReplayTest, DuplicatesDoNotDisturbTheMessage) {
  peer.PostReceive(7, {1000});
  peer.Deliver(peer.Write(kWriteOnly, 100, 0, 0));
  peer.Deliver(peer.Request(kSendFirst, 101), 256, 1);
  peer.Deliver(peer.Request(kSendFirst, 101), 256, 1);
  peer.Deliver(peer.Write(kWriteOnly, 100, 0, 0, true));
  peer.Deliver(peer.Request(kSendLast, 102, true), 4, 2);
  EXPECT_EQ(peer.TakeReceives(), "7 ok 260");
  EXPECT_EQ(Target(0, 256), WirePeer::Pattern(256, 1));
  EXPECT_EQ(Target(256, 4), WirePeer::Pattern(4, 2));
  EXPECT_EQ(peer.Transmit(), "ACK 102 msn 2");
}

TEST_F(ReplayTest, DuplicateReadIsExecutedAgain) {
  peer.Deliver(peer.Read(100, 0, 8));
  EXPECT_EQ(peer.Transmit(), "READ_ONLY 100 msn 1 [8]");
  peer.target->bytes[0] = 77;
  peer.Deliver(peer.Read(100, 0, 8));
  EXPECT_EQ(peer.Transmit(), "READ_ONLY 100 msn 1 [8]");
  EXPECT_EQ(peer.payload[0], 77);
}

TEST_F(ReplayTest, RestOfAReadIsAskedForAgain) {
  peer.Deliver(peer.Read(100, 0, 700));
  EXPECT_EQ(peer.Transmit(),
            "READ_FIRST 100 msn 1 [256]; READ_MIDDLE 101 [256] | "
            "READ_LAST 102 msn 1 [188]");
  peer.Deliver(peer.Read(101, 256, 444));
  EXPECT_EQ(peer.Transmit(),
            "READ_FIRST 101 msn 1 [256]; READ_LAST 102 msn 1 [188]");
  peer.Deliver(peer.Read(102, 512, 188));
  EXPECT_EQ(peer.Transmit(), "READ_ONLY 102 msn 1 [188]");
  // A piece from the middle.
  peer.Deliver(peer.Read(101, 256, 256));
  EXPECT_EQ(peer.Transmit(), "READ_ONLY 101 msn 1 [256]");
}

TEST_F(ReplayTest, ReadThatWasNeverAskedForIsNotRepeated) {
  peer.Deliver(peer.Write(kWriteOnly, 100, 0, 0));
  peer.Deliver(peer.Read(101, 0, 700));
  peer.Deliver(peer.Write(kWriteOnly, 104, 0, 0));
  peer.Transmit();
  wire::Headers other_key = peer.Read(101, 0, 700);
  ++other_key.reth.rkey;
  for (const wire::Headers& request : {
           peer.Read(101, 1, 600),    // another address
           peer.Read(102, 0, 444),    // not advanced with its PSN
           peer.Read(102, 256, 445),  // past the end
           peer.Read(101, 0, 701),
           peer.Read(102, 256, 0),
           peer.Read(100, 0, 8),  // that was a WRITE
           peer.Read(104, 0, 8),
           peer.Read(50, 0, 8),  // before all
           other_key,
       }) {
    peer.Deliver(request);
    EXPECT_EQ(peer.Transmit(), "");
  }
  EXPECT_EQ(counters().dropped_window, 9u);
  EXPECT_EQ(peer.qp->state(), QpState::kRts);
  // Nor does a SEND take the place of a READ.
  peer.Deliver(peer.Request(kSendOnly, 102, true), 8);
  EXPECT_EQ(peer.Transmit(), "");
}

TEST_F(ReplayTest, DuplicateRestartsAStreamAndDoesNotDoubleIt) {
  peer.Deliver(peer.Read(100, 0, 1024));
  EXPECT_EQ(peer.TransmitOne(),
            "READ_FIRST 100 msn 1 [256]; READ_MIDDLE 101 [256]");
  peer.Deliver(peer.Read(101, 256, 768));
  peer.Deliver(peer.Read(101, 256, 768));
  peer.Deliver(peer.Read(101, 256, 768));
  EXPECT_EQ(peer.Transmit(),
            "READ_FIRST 101 msn 1 [256]; READ_MIDDLE 102 [256] | "
            "READ_LAST 103 msn 1 [256]");
}

// A part that is requested again is sent first, then the rest of the response.
TEST_F(ReplayTest, PartIsRepeatedAndTheStreamGoesOn) {
  peer.Deliver(peer.Read(100, 0, 256 * 20));
  peer.TransmitOne();
  peer.TransmitOne();  // up to 117
  peer.Deliver(peer.Read(102, 512, 512));
  EXPECT_EQ(peer.Transmit(),
            "READ_FIRST 102 msn 1 [256]; READ_LAST 103 msn 1 [256]; "
            "READ_MIDDLE 118 [256] | READ_LAST 119 msn 1 [256]");
  // That was everything.
  peer.Deliver(peer.Read(105, 5 * 256, 256));
  EXPECT_EQ(peer.Transmit(), "READ_ONLY 105 msn 1 [256]");
}

TEST_F(ReplayTest, AnotherPartDoesNotLoseTheStream) {
  peer.Deliver(peer.Read(100, 0, 256 * 20));
  peer.TransmitOne();
  peer.TransmitOne();
  peer.Deliver(peer.Read(102, 512, 256));
  peer.Deliver(peer.Read(104, 1024, 256 * 14));  // to 117
  peer.Deliver(peer.Read(102, 512, 256));
  EXPECT_EQ(peer.Transmit(),
            "READ_ONLY 102 msn 1 [256]; READ_MIDDLE 118 [256] | "
            "READ_LAST 119 msn 1 [256]");
}

TEST_F(ReplayTest, PartThatReachesIntoTheStreamIsNotSentTwice) {
  peer.Deliver(peer.Read(100, 0, 256 * 20));
  peer.TransmitOne();
  peer.TransmitOne();
  peer.Deliver(peer.Read(117, 17 * 256, 2 * 256));
  EXPECT_EQ(peer.Transmit(),
            "READ_FIRST 117 msn 1 [256]; READ_LAST 118 msn 1 [256]; "
            "READ_LAST 119 msn 1 [256]");
}

// Nothing is left after it: the READ ends where it did.
TEST_F(ReplayTest, PartThatEndsInsideTheLastPacket) {
  peer.Deliver(peer.Read(100, 0, 600));
  EXPECT_EQ(peer.TransmitOne(),
            "READ_FIRST 100 msn 1 [256]; READ_MIDDLE 101 [256]");
  peer.Deliver(peer.Read(100, 0, 550));
  EXPECT_EQ(peer.Transmit(),
            "READ_FIRST 100 msn 1 [256]; READ_MIDDLE 101 [256] | "
            "READ_LAST 102 msn 1 [38]");
  EXPECT_EQ(peer.qp->state(), QpState::kRts);
}

TEST_F(ReplayTest, PartThatEndsInsideAFullLastPacket) {
  peer.Deliver(peer.Read(100, 0, 768));
  peer.TransmitOne();
  peer.Deliver(peer.Read(100, 0, 750));
  EXPECT_EQ(peer.Transmit(),
            "READ_FIRST 100 msn 1 [256]; READ_MIDDLE 101 [256] | "
            "READ_LAST 102 msn 1 [238]");
}

TEST_F(ReplayTest, PartThatIsStillToComeIsNotRepeated) {
  peer.Deliver(peer.Read(100, 0, 256 * 20));
  peer.TransmitOne();
  peer.TransmitOne();
  peer.Deliver(peer.Read(118, 18 * 256, 256));
  EXPECT_EQ(peer.Transmit(),
            "READ_MIDDLE 118 [256] | READ_LAST 119 msn 1 [256]");
}

TEST_F(ReplayTest, RepeatedReadGoesBeforeLaterResponses) {
  peer.Deliver(peer.Read(100, 0, 8));
  peer.Transmit();
  peer.Deliver(peer.Read(101, 0, 16));
  peer.Deliver(peer.Read(100, 0, 8));
  EXPECT_EQ(peer.Transmit(),
            "READ_ONLY 100 msn 1 [8] | READ_ONLY 101 msn 2 [16]");
}

// A copy of a READ arrives when the application, which knows that it was
// answered, has withdrawn its memory: that does not end the connection.
TEST_F(ReplayTest, RepeatedReadChecksTheKeyAgain) {
  peer.Deliver(peer.Read(100, 0, 600));
  peer.Transmit();
  peer.target->valid = false;
  peer.Deliver(peer.Read(100, 0, 600));
  EXPECT_EQ(peer.Transmit(), "");
  EXPECT_EQ(peer.qp->state(), QpState::kRts);
  EXPECT_EQ(peer.qp->counters().dropped_window, 1u);
  peer.Deliver(peer.Write(kWriteOnly, 103, 0, 0, true));
  EXPECT_EQ(peer.Transmit(), "ACK 103 msn 2");
}

// One that was never answered is refused.
TEST_F(ReplayTest, RepeatedReadOfWhatWasNeverSent) {
  peer.Deliver(peer.Read(100, 0, 8));
  peer.target->valid = false;
  peer.Deliver(peer.Read(100, 0, 8));
  EXPECT_EQ(peer.Transmit(), "NAK access 100 msn 0");
  EXPECT_EQ(peer.qp->state(), QpState::kErr);
}

TEST_F(ReplayTest, AtomicIsExecutedOnce) {
  peer.Deliver(peer.Atomic(kFetchAdd, 100, 0, 5));
  peer.Deliver(peer.Atomic(kFetchAdd, 101, 0, 5));
  EXPECT_EQ(peer.Transmit(), "ATOMIC 100 msn 1 = 0; ATOMIC 101 msn 2 = 5");
  peer.Deliver(peer.Atomic(kFetchAdd, 100, 0, 5));
  EXPECT_EQ(peer.Transmit(), "ATOMIC 100 msn 1 = 0");
  EXPECT_EQ(Word(0), 10u);
  // Another operation at that PSN is not a duplicate.
  peer.Deliver(peer.Atomic(kCompareSwap, 100, 0, 5));
  peer.Deliver(peer.Atomic(kFetchAdd, 100, 8, 5));
  EXPECT_EQ(peer.Transmit(), "");
  EXPECT_EQ(counters().dropped_window, 2u);
}

TEST_F(ReplayTest, AtomicThatHasLeftTheWindow) {
  for (uint32_t psn = 100; psn < 105; ++psn) {
    peer.Deliver(peer.Atomic(kFetchAdd, psn, 0, 1));
    peer.Transmit();
  }
  peer.Deliver(peer.Atomic(kFetchAdd, 100, 0, 1));
  EXPECT_EQ(peer.Transmit(), "");
  peer.Deliver(peer.Atomic(kFetchAdd, 101, 0, 1));
  EXPECT_EQ(peer.Transmit(), "ATOMIC 101 msn 2 = 1");
  EXPECT_EQ(Word(0), 5u);
  EXPECT_EQ(counters().dropped_window, 1u);
}

TEST_F(ReplayTest, RepeatsDoNotUseUpTheRequestersShare) {
  for (uint32_t psn = 100; psn < 104; ++psn) {
    peer.Deliver(peer.Atomic(kFetchAdd, psn, 0, 1));
  }
  peer.Transmit();
  peer.Deliver(peer.Atomic(kFetchAdd, 100, 0, 1));  // a late copy
  peer.Deliver(peer.Atomic(kFetchAdd, 104, 0, 1));
  EXPECT_EQ(peer.Transmit(), "ATOMIC 104 msn 5 = 4");
  EXPECT_EQ(peer.qp->state(), QpState::kRts);
}

TEST_F(ReplayTest, AtomicWriteIsExecutedOnce) {
  peer.Deliver(peer.Write(kAtomicWrite, 100, 0, 8), 8, 1);
  peer.Deliver(peer.Write(kWriteOnly, 101, 0, 8), 8, 9);
  EXPECT_EQ(peer.Transmit(), "READ_ONLY 100 msn 1 [0]");
  peer.Deliver(peer.Write(kAtomicWrite, 100, 0, 8), 8, 1);
  EXPECT_EQ(peer.Transmit(), "READ_ONLY 100 msn 1 [0]");
  EXPECT_EQ(Target(0, 8), WirePeer::Pattern(8, 9));
  // As rxe repeats it.
  wire::Headers repeated = peer.Write(kAtomicWrite, 100, 0, 8);
  repeated.reth.va = 0;
  peer.Deliver(repeated, 8, 1);
  EXPECT_EQ(peer.Transmit(), "READ_ONLY 100 msn 1 [0]");
  EXPECT_EQ(Target(0, 8), WirePeer::Pattern(8, 9));
}

TEST_F(ReplayTest, ResourcesFollowTheirLimit) {
  peer.Deliver(peer.Atomic(kFetchAdd, 100, 0, 1));
  peer.Deliver(peer.Atomic(kFetchAdd, 101, 0, 1));
  peer.Transmit();
  ASSERT_EQ(peer.Modify(QpState::kSqd), 0);
  QpAttributes changed;
  for (uint8_t limit : {8, 1}) {
    changed.max_dest_rd_atomic = limit;
    ASSERT_EQ(peer.qp->Modify(changed, kQpMaxDestRdAtomic, peer.now), 0);
    peer.Deliver(peer.Atomic(kFetchAdd, 101, 0, 1));
    EXPECT_EQ(peer.Transmit(), "ATOMIC 101 msn 2 = 1");
  }
  peer.Deliver(peer.Atomic(kFetchAdd, 100, 0, 1));
  EXPECT_EQ(peer.Transmit(), "");
  peer.Deliver(peer.Atomic(kFetchAdd, 102, 0, 1));
  EXPECT_EQ(peer.Transmit(), "ATOMIC 102 msn 3 = 2");
}

// --- Gaps.

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
TEST_F(ReplayTest, LostNakIsSentAgainWhenAsked) {
  peer.Deliver(peer.Write(kWriteOnly, 101, 0, 0, true));
  EXPECT_EQ(peer.Transmit(), "NAK sequence 100 msn 0");
  peer.Deliver(peer.Write(kWriteOnly, 101, 0, 0));
  EXPECT_EQ(peer.Transmit(), "");
  peer.Deliver(peer.Write(kWriteOnly, 101, 0, 0, true));
  EXPECT_EQ(peer.Transmit(), "NAK sequence 100 msn 0");
}

// What was retransmitted for a NAK arrived twice: it had only been late. The
// next gap is given some time, and fills before it is reported.
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

TEST_F(TwoGapsTest, PeerGoesOn) {
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

// What is retransmitted behind a request that found no receive is buffered
// already. Its last packet asks for an ACK, but the peer has got its answer:
// RNR.
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
  deliver(101);  // the same flight, in a burst of its own
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
  // It was not.
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

// Nor do packets that are too long for the receive, which stays for the next
// one in order.
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

// --- OutOfOrderPackets itself.

using enum OutOfOrderPackets::Inserted;

TEST(OutOfOrderPacketsTest, OrderCapacityAndReturn) {
  PacketArenaPool pool;
  OutOfOrderPackets held(&pool);
  const Bytes packet(100, 1);
  EXPECT_EQ(held.Insert(1, Bytes(101), 100), kFull);
  // Descending, with odd ones missing at first.
  for (uint64_t psn = 100; psn > 0; psn -= 2) {
    EXPECT_EQ(held.Insert(psn, packet, 100), kBuffered);
    EXPECT_EQ(held.Insert(psn, packet, 100), kCopy);
  }
  for (uint64_t psn = 1; psn < 100; psn += 2) {
    EXPECT_EQ(held.Insert(psn, packet, 100), kBuffered);
  }
  for (uint64_t psn = 1; psn <= 60; ++psn) {
    EXPECT_EQ(held.first_psn(), psn);
    EXPECT_EQ(held.first().size(), 100u);
    held.PopFirst();
  }
  // Freed places are used again, however often.
  uint64_t next = 101;
  while (held.Insert(next, packet, 100) == kBuffered) ++next;
  EXPECT_EQ(held.size(), PacketArena::kMaxPackets);
  for (int round = 0; round < 2000; ++round) {
    held.PopFirst();
    EXPECT_EQ(held.Insert(next++, packet, 100), kBuffered);
  }
  EXPECT_EQ(held.first_psn(), next - PacketArena::kMaxPackets);
  held.Clear();
  EXPECT_TRUE(held.empty());
}

// Two packets with one PSN and different contents: neither stays, and the slot
// is free again.
TEST(OutOfOrderPacketsTest, Conflict) {
  PacketArenaPool pool;
  OutOfOrderPackets held(&pool);
  const Bytes packet(100, 1);
  for (uint64_t psn = 1; psn <= 3; ++psn) held.Insert(psn, packet, 100);
  Bytes again = packet;
  again[4] ^= 0x80;   // FECN
  again[8] ^= 0x80;   // AckReq
  again[99] ^= 0xff;  // ICRC
  EXPECT_EQ(held.Insert(2, again, 100), kCopy);
  for (const size_t at : {0u, 1u, 2u, 12u, 95u}) {
    Bytes other = packet;
    other[at] ^= 1;
    EXPECT_EQ(held.Insert(2, other, 100), kConflict) << at;
    EXPECT_EQ(held.size(), 2u);
    EXPECT_EQ(held.Insert(2, packet, 100), kBuffered);
  }
  EXPECT_EQ(held.Insert(2, Bytes(99, 1), 100), kConflict);
  held.PopFirst();
  EXPECT_EQ(held.first_psn(), 3u);
  for (uint64_t psn = 4; psn < 4 + PacketArena::kMaxPackets - 1; ++psn) {
    EXPECT_EQ(held.Insert(psn, packet, 100), kBuffered);
  }
  EXPECT_EQ(held.Insert(600, packet, 100), kFull);
}

TEST(OutOfOrderPacketsTest, PoolIsBounded) {
  PacketArenaPool pool;
  std::vector<std::unique_ptr<OutOfOrderPackets>> all;
  for (size_t i = 0; i < PacketArenaPool::kMaxArenas; ++i) {
    all.push_back(std::make_unique<OutOfOrderPackets>(&pool));
    EXPECT_EQ(all.back()->Insert(1, Bytes(16), 300), kBuffered);
  }
  OutOfOrderPackets one_more(&pool);
  EXPECT_EQ(one_more.Insert(1, Bytes(16), 300), kFull);
  all.pop_back();
  EXPECT_EQ(one_more.Insert(1, Bytes(16), 300), kBuffered);
}

}  // namespace
}  // namespace transport
