// Duplicates: what a responder repeats, and what it does not execute again.
#include "gtest/gtest.h"
#include "transport/testing/replay_fixture.h"
#include "transport/testing/wire_peer.h"

namespace transport {
namespace {

using enum wire::Operation;

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

TEST_F(ReplayTest, RestOfAReadIsRequestedAgain) {
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

TEST_F(ReplayTest, ReadThatWasNeverRequestedIsNotRepeated) {
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
  // A SEND does not take the place of a READ either.
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
  // The stream is complete.
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

// Nothing is left after the part: the READ ends where it did.
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

// A READ that was never answered is refused.
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

TEST_F(ReplayTest, DuplicatesDoNotUseUpResponderResources) {
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
  // rxe repeats it without an address.
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

}  // namespace
}  // namespace transport
