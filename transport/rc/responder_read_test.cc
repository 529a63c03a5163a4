// READs and atomics, and the limits of their length and number.
#include "gtest/gtest.h"
#include "transport/testing/responder_fixture.h"

namespace transport {
namespace {

using enum wire::Operation;

class ResponderReadTest : public ResponderTest {};

// --- READ.

TEST_F(ResponderReadTest, ReadOnly) {
  SetWord(8, 0x0807060504030201);
  peer.Deliver(peer.Read(100, 8, 7));
  EXPECT_EQ(peer.Transmit(), "READ_ONLY 100 msn 1 [7]");
  EXPECT_EQ(peer.payload, (Bytes{1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(peer.Transmit(), "");
}

TEST_F(ResponderReadTest, ReadOfTwoPackets) {
  peer.Deliver(peer.Read(100, 0, 257));
  EXPECT_EQ(peer.Transmit(),
            "READ_FIRST 100 msn 1 [256]; READ_LAST 101 msn 1 [1]");
  peer.Deliver(peer.Write(kWriteOnly, 102, 0, 0, true));
  EXPECT_EQ(peer.Transmit(), "ACK 102 msn 2");
}

TEST_F(ResponderReadTest, ReadOfFourPacketsTakesThreeBursts) {
  const Bytes pattern = WirePeer::Pattern(1024);
  std::copy(pattern.begin(), pattern.end(), peer.target->bytes.begin());
  peer.Deliver(peer.Read(100, 0, 1024));
  // A burst's packets are equally long, the last perhaps shorter.
  EXPECT_EQ(peer.Transmit(),
            "READ_FIRST 100 msn 1 [256]; READ_MIDDLE 101 [256] | "
            "READ_MIDDLE 102 [256] | READ_LAST 103 msn 1 [256]");
  EXPECT_EQ(peer.payload, pattern);
}

// The packets are large enough that the ICRC is computed during the copy; the
// peer checks it.
TEST_F(ResponderReadTest, ReadOfLargePackets) {
  WirePeer large;
  large.attributes.path_mtu = 4096;
  large.Connect();
  const Bytes pattern = WirePeer::Pattern(4096 + 2049);
  large.target->claimed = pattern.size();
  large.target->bytes = pattern;
  large.Deliver(large.Read(100, 0, 4096 + 2049));
  EXPECT_EQ(large.Transmit(),
            "READ_FIRST 100 msn 1 [4096]; READ_LAST 101 msn 1 [2049]");
  EXPECT_EQ(large.payload, pattern);
}

TEST_F(ResponderReadTest, NextPacketsColdMemoryIsFetched) {
  using Hints = std::vector<bool>;
  peer.Deliver(peer.Read(100, 0, 257));
  peer.Transmit();
  EXPECT_EQ(peer.memory.more(), Hints({false, false}));
  peer.target->cold = true;
  peer.memory.ForgetMore();
  peer.Deliver(peer.Read(102, 0, 600));
  peer.Transmit();
  EXPECT_EQ(peer.memory.more(), Hints({true, true, false}));
}

TEST_F(ResponderReadTest, EmptyReadChecksNoKey) {
  wire::Headers headers = peer.Read(100, 0, 0);
  headers.reth.rkey = 0xbad;
  peer.Deliver(headers);
  EXPECT_EQ(peer.Transmit(), "READ_ONLY 100 msn 1 [0]");
}

TEST_F(ResponderReadTest, ReadIsRefusedAtOnce) {
  peer.Deliver(peer.Read(100, 64 * 1024 - 8, 9));
  ExpectRefused("NAK access 100 msn 0", kAccessErrorEvent);
}

TEST_F(ResponderReadTest, ReadWithoutTheRegionsRight) {
  peer.target->access = kAccessLocalWrite | kAccessRemoteWrite;
  peer.Deliver(peer.Read(100, 0, 9));
  ExpectRefused("NAK access 100 msn 0", kAccessErrorEvent);
}

TEST_F(ResponderReadTest, RegionGoesWhileAReadIsAnswered) {
  peer.Deliver(peer.Read(100, 0, 1024));
  EXPECT_EQ(peer.TransmitOne(),
            "READ_FIRST 100 msn 1 [256]; READ_MIDDLE 101 [256]");
  peer.target->valid = false;
  // The message that is refused does not count as completed.
  EXPECT_EQ(peer.Transmit(), "NAK access 102 msn 0");
  EXPECT_EQ(peer.qp->state(), QpState::kErr);
  EXPECT_EQ(peer.TakeEvents(), kAccessErrorEvent);
}

// Messages behind a refused READ do not count either, though they have been
// executed.
TEST_F(ResponderReadTest, NakOfAReadCountsWhatWasCompletedBeforeIt) {
  FakeMemory::Region& other =
      peer.memory.Add(0x900000, 1024, WirePeer::kPd, WirePeer::kAllAccess);
  peer.PostReceive(7, {8});
  peer.Deliver(peer.Write(kWriteOnly, 100, 0, 0));
  peer.Deliver(peer.Read(101, 0, 300));
  wire::Headers fails = peer.Read(103, 0, 1024);
  fails.reth = {other.va, other.rkey, 1024};
  peer.Deliver(fails);
  peer.Deliver(peer.Request(kSendOnly, 107, true), 8);
  peer.Deliver(peer.Atomic(kFetchAdd, 108, 0, 1));
  EXPECT_EQ(peer.TakeReceives(), "7 ok 8");
  other.valid = false;
  EXPECT_EQ(peer.Transmit(),
            "READ_FIRST 101 msn 2 [256]; READ_LAST 102 msn 2 [44] | "
            "NAK access 103 msn 2");
  EXPECT_EQ(peer.qp->state(), QpState::kErr);
}

TEST_F(ResponderReadTest, NoAckOvertakesAReadResponse) {
  peer.PostReceive(7, {8});
  peer.Deliver(peer.Write(kWriteOnly, 100, 0, 0, true));
  peer.Deliver(peer.Read(101, 0, 257));
  peer.Deliver(peer.Request(kSendOnly, 103, true), 8);
  EXPECT_EQ(peer.TakeReceives(), "7 ok 8");
  EXPECT_EQ(peer.Transmit(),
            "READ_FIRST 101 msn 2 [256]; READ_LAST 102 msn 2 [1] | "
            "ACK 103 msn 3");
}

TEST_F(ResponderReadTest, NoNakOvertakesAReadResponse) {
  peer.Deliver(peer.Read(100, 0, 8));
  peer.Deliver(peer.Read(105, 0, 8));  // a gap
  EXPECT_EQ(peer.Transmit(), "READ_ONLY 100 msn 1 [8]; NAK sequence 101 msn 1");
}

TEST_F(ResponderReadTest, ResponsesPrecedeTheLastNak) {
  SetWord(0, 17);
  peer.Deliver(peer.Read(100, 0, 8));
  peer.Deliver(peer.Atomic(kFetchAdd, 101, 0, 3));
  peer.Deliver(peer.Read(102, 1 << 20, 8));
  EXPECT_EQ(peer.qp->state(), QpState::kErr);
  EXPECT_EQ(peer.Transmit(),
            "READ_ONLY 100 msn 1 [8]; ATOMIC 101 msn 2 = 17; "
            "NAK access 102 msn 2");
}

TEST_F(ResponderReadTest, AsManyReadsAsAgreed) {
  for (uint32_t psn = 100; psn < 104; ++psn) {
    peer.Deliver(peer.Read(psn, 0, 8));
  }
  EXPECT_EQ(peer.qp->state(), QpState::kRts);
  peer.Deliver(peer.Read(104, 0, 8));
  ExpectRefused(
      "READ_ONLY 100 msn 1 [8]; READ_ONLY 101 msn 2 [8]; "
      "READ_ONLY 102 msn 3 [8]; READ_ONLY 103 msn 4 [8]; "
      "NAK invalid-request 104 msn 4",
      kRequestErrorEvent);
}

TEST_F(ResponderReadTest, AnsweredReadsMakeRoom) {
  for (uint32_t psn = 100; psn < 120; ++psn) {
    peer.Deliver(peer.Read(psn, 0, 8));
    EXPECT_EQ(peer.Transmit(), "READ_ONLY " + std::to_string(psn) + " msn " +
                                   std::to_string(psn - 99) + " [8]");
  }
}

TEST(ResponderLimitsTest, NoReadsAgreed) {
  WirePeer peer;
  peer.attributes.max_dest_rd_atomic = 0;
  peer.Connect();
  peer.Deliver(peer.Read(100, 0, 8));
  EXPECT_EQ(peer.Transmit(), "NAK invalid-request 100 msn 0");
  EXPECT_EQ(peer.qp->state(), QpState::kErr);
}

// Half of all PSNs in one READ: the longest message at the smallest MTU.
TEST(ResponderLimitsTest, LongestRead) {
  constexpr uint32_t kPackets = 1u << 23;
  WirePeer peer;
  peer.Connect();
  peer.target->claimed = 1u << 31;
  peer.Deliver(peer.Read(100, 0, 1u << 31));
  EXPECT_EQ(peer.TransmitOne(),
            "READ_FIRST 100 msn 1 [256]; READ_MIDDLE 101 [256]");
  // The first PSN is as far back as a duplicate can be, and the next request
  // follows the last.
  peer.Deliver(peer.Read(100, 0, 1u << 31));
  EXPECT_EQ(peer.TransmitOne(),
            "READ_FIRST 100 msn 1 [256]; READ_MIDDLE 101 [256]");
  const uint32_t last = 100 + kPackets - 1;
  peer.Deliver(peer.Read(last, (1u << 31) - 256, 256));
  EXPECT_EQ(peer.Transmit(),
            "READ_ONLY " + std::to_string(last) + " msn 1 [256]");
  peer.Deliver(peer.Write(kWriteOnly, last + 1, 0, 0, true));
  EXPECT_EQ(peer.Transmit(), "ACK " + std::to_string(last + 1) + " msn 2");
}

TEST(ResponderLimitsTest, LongestWrite) {
  constexpr uint32_t kPackets = 1u << 23;
  WirePeer peer;
  peer.Connect();
  peer.target->claimed = 1u << 31;
  peer.Deliver(peer.Write(kWriteFirst, 100, 0, 1u << 31), 256);
  const std::vector<uint8_t> middle =
      peer.Build(peer.Request(kWriteMiddle, 0), 256);
  std::vector<uint8_t> packet = middle;
  const wire::IcrcFlow flow(peer.datagram.source, peer.datagram.destination,
                            peer.datagram.source_port, wire::kRoceUdpPort);
  for (uint32_t i = 1; i < kPackets - 1; ++i) {
    wire::StoreBe24(packet.data() + 9, 100 + i);
    flow.Store(packet, 0);
    peer.Deliver(packet);
  }
  peer.Deliver(peer.Request(kWriteLast, 100 + kPackets - 1, true), 256);
  EXPECT_EQ(peer.Transmit(),
            "ACK " + std::to_string(100 + kPackets - 1) + " msn 1");
}

TEST(ResponderLimitsTest, LongerThanTheLongest) {
  WirePeer peer;
  peer.Connect();
  wire::Headers headers = peer.Read(100, 0, (1u << 31) + 1);
  peer.Deliver(headers);
  EXPECT_EQ(peer.Transmit(), "NAK invalid-request 100 msn 0");
}

// --- Atomics.

TEST_F(ResponderReadTest, FetchAdd) {
  SetWord(16, 40);
  peer.Deliver(peer.Atomic(kFetchAdd, 100, 16, 2));
  EXPECT_EQ(Word(16), 42u);
  EXPECT_EQ(peer.Transmit(), "ATOMIC 100 msn 1 = 40");
}

TEST_F(ResponderReadTest, CompareSwap) {
  SetWord(16, 40);
  peer.Deliver(peer.Atomic(kCompareSwap, 100, 16, 7, 41));
  EXPECT_EQ(Word(16), 40u);
  peer.Deliver(peer.Atomic(kCompareSwap, 101, 16, 7, 40));
  EXPECT_EQ(Word(16), 7u);
  EXPECT_EQ(peer.Transmit(), "ATOMIC 100 msn 1 = 40; ATOMIC 101 msn 2 = 40");
}

TEST_F(ResponderReadTest, MisalignedAtomic) {
  peer.Deliver(peer.Atomic(kFetchAdd, 100, 4, 2));
  EXPECT_TRUE(Untouched());
  ExpectRefused("NAK invalid-request 100 msn 0", kRequestErrorEvent);
}

TEST_F(ResponderReadTest, AtomicWithoutTheRegionsRight) {
  peer.target->access = kAccessLocalWrite | kAccessRemoteWrite;
  peer.Deliver(peer.Atomic(kFetchAdd, 100, 0, 2));
  EXPECT_TRUE(Untouched());
  ExpectRefused("NAK access 100 msn 0", kAccessErrorEvent);
}

TEST_F(ResponderReadTest, AtomicAtTheRegionsEnd) {
  peer.Deliver(peer.Atomic(kFetchAdd, 100, 64 * 1024, 2));
  ExpectRefused("NAK access 100 msn 0", kAccessErrorEvent);
}

TEST_F(ResponderReadTest, AtomicOnPagesThatAreGone) {
  peer.target->faulty = true;
  peer.Deliver(peer.Atomic(kFetchAdd, 100, 0, 2));
  ExpectRefused("NAK access 100 msn 0", kAccessErrorEvent);
}

TEST_F(ResponderReadTest, AtomicWrite) {
  SetWord(8, 5);
  peer.Deliver(peer.Write(kAtomicWrite, 100, 8, 8), 8);
  EXPECT_EQ(Target(8, 8), WirePeer::Pattern(8));
  EXPECT_EQ(peer.Transmit(), "READ_ONLY 100 msn 1 [0]");
}

TEST(ResponderAtomicWriteTest, OnlyIfTheDeviceHasIt) {
  WirePeer::Options options;
  options.memory_placement = false;
  WirePeer peer(options);
  peer.Connect();
  peer.Deliver(peer.Write(kAtomicWrite, 100, 8, 8), 8);
  EXPECT_EQ(peer.Transmit(), "NAK invalid-request 100 msn 0");
  EXPECT_EQ(peer.TakeEvents(), kRequestErrorEvent);
  EXPECT_EQ(peer.qp->state(), QpState::kErr);
  EXPECT_EQ(peer.target->bytes[8], 0);
}

TEST_F(ResponderReadTest, AtomicWriteOfAnotherLength) {
  peer.Deliver(peer.Write(kAtomicWrite, 100, 8, 8), 4);
  EXPECT_TRUE(Untouched());
  ExpectRefused("NAK invalid-request 100 msn 0", kRequestErrorEvent);
}

TEST_F(ResponderReadTest, AtomicWriteThatNamesAnotherLength) {
  peer.Deliver(peer.Write(kAtomicWrite, 100, 8, 16), 8);
  ExpectRefused("NAK invalid-request 100 msn 0", kRequestErrorEvent);
}

TEST_F(ResponderReadTest, AtomicWriteMisaligned) {
  peer.Deliver(peer.Write(kAtomicWrite, 100, 9, 8), 8);
  EXPECT_TRUE(Untouched());
  ExpectRefused("NAK invalid-request 100 msn 0", kRequestErrorEvent);
}

// --- FLUSH (annex A19).

class ResponderFlushTest : public ResponderTest {
 protected:
  static constexpr uint32_t kFlushes =
      kAccessFlushGlobal | kAccessFlushPersistent;

  ResponderFlushTest() {
    peer.target->access |= kFlushes;
    Allow(kFlushes);
  }
  // Rights of the queue pair beyond the usual.
  void Allow(uint32_t access) {
    QpAttributes attributes;
    attributes.access_flags = WirePeer::kAllAccess | access;
    ASSERT_EQ(peer.qp->Modify(attributes, kQpAccessFlags, peer.now), 0);
  }
  wire::Headers Flush(uint32_t psn, uint8_t placement, uint8_t selectivity,
                      uint64_t offset = 0, uint32_t length = 8) {
    wire::Headers headers = peer.Write(kFlush, psn, offset, length);
    headers.feth = {placement, selectivity};
    return headers;
  }
};

TEST_F(ResponderFlushTest, FollowsWhatWasWrittenBefore) {
  peer.Deliver(peer.Write(kWriteOnly, 100, 16, 8), 8);
  peer.Deliver(
      Flush(101, wire::kPlacementPersistence, wire::kSelectivityRange, 16, 8));
  ASSERT_EQ(peer.memory.flushes().size(), 1u);
  const MemoryAccess& flushed = peer.memory.flushes()[0];
  EXPECT_EQ(flushed.va, WirePeer::kVa + 16);
  EXPECT_EQ(flushed.length, 8u);
  EXPECT_EQ(flushed.access, uint32_t{kAccessFlushPersistent});
  EXPECT_EQ(Target(16, 8), WirePeer::Pattern(8));
  EXPECT_EQ(peer.Transmit(), "READ_ONLY 101 msn 2 [0]");
}

TEST_F(ResponderFlushTest, OfAWholeRegionChecksNoRange) {
  peer.Deliver(Flush(100, 3, wire::kSelectivityWholeMr, 1u << 30, 1u << 30));
  ASSERT_EQ(peer.memory.flushes().size(), 1u);
  EXPECT_EQ(peer.memory.flushes()[0].va, WirePeer::kVa);
  EXPECT_EQ(peer.memory.flushes()[0].length, peer.target->bytes.size());
  EXPECT_EQ(peer.memory.flushes()[0].access, kFlushes);
  EXPECT_EQ(peer.Transmit(), "READ_ONLY 100 msn 1 [0]");
}

// The length that is ignored may be longer than a message can be.
TEST_F(ResponderFlushTest, OfAWholeRegionIgnoresAddressAndLength) {
  const uint64_t nowhere = uint64_t{0} - WirePeer::kVa;
  peer.Deliver(Flush(100, 1, wire::kSelectivityWholeMr, nowhere, ~0u));
  ASSERT_EQ(peer.memory.flushes().size(), 1u);
  EXPECT_EQ(peer.memory.flushes()[0].va, WirePeer::kVa);
  EXPECT_EQ(peer.Transmit(), "READ_ONLY 100 msn 1 [0]");
  // A duplicate ignores them as well.
  peer.Deliver(Flush(100, 1, wire::kSelectivityWholeMr, 8, 0));
  EXPECT_EQ(peer.Transmit(), "READ_ONLY 100 msn 1 [0]");
  EXPECT_EQ(peer.memory.flushes().size(), 1u);
  // For a range, address and length both count.
  peer.Deliver(Flush(101, 1, wire::kSelectivityRange, 8, 8));
  EXPECT_EQ(peer.Transmit(), "READ_ONLY 101 msn 2 [0]");
  peer.Deliver(Flush(101, 1, wire::kSelectivityRange, 16, 8));
  EXPECT_EQ(peer.Transmit(), "");
  peer.Deliver(Flush(102, 1, wire::kSelectivityRange, 0, ~0u));
  ExpectRefused("NAK invalid-request 102 msn 2", kRequestErrorEvent);
}

TEST_F(ResponderFlushTest, IsExecutedOnceAndAnsweredAgain) {
  peer.Deliver(Flush(100, 1, 0));
  peer.Deliver(peer.Write(kWriteOnly, 101, 0, 8), 8);
  EXPECT_EQ(peer.Transmit(), "READ_ONLY 100 msn 1 [0]");
  peer.Deliver(Flush(100, 1, 0));
  EXPECT_EQ(peer.Transmit(), "READ_ONLY 100 msn 1 [0]");
  EXPECT_EQ(peer.memory.flushes().size(), 1u);
}

TEST_F(ResponderFlushTest, UnknownKindsAreInvalid) {
  for (const wire::Feth feth :
       {wire::Feth{0, 0}, wire::Feth{4, 0}, wire::Feth{1, 2}}) {
    WirePeer other;
    other.attributes.access_flags |= kFlushes;
    other.Connect();
    wire::Headers headers = other.Write(kFlush, 100, 0, 8);
    headers.feth = feth;
    other.Deliver(headers);
    EXPECT_EQ(other.Transmit(), "NAK invalid-request 100 msn 0");
  }
}

TEST_F(ResponderFlushTest, NeedsTheRightsOfTheQueuePair) {
  Allow(kAccessFlushGlobal);
  peer.Deliver(Flush(100, 1, 0));
  EXPECT_EQ(peer.Transmit(), "READ_ONLY 100 msn 1 [0]");
  peer.Deliver(Flush(101, 3, 0));
  ExpectRefused("NAK invalid-request 101 msn 1", kRequestErrorEvent);
}

TEST_F(ResponderFlushTest, NeedsTheRightsOfTheRegion) {
  peer.target->access &= ~uint32_t{kAccessFlushPersistent};
  peer.Deliver(Flush(100, 1, 0));
  EXPECT_EQ(peer.Transmit(), "READ_ONLY 100 msn 1 [0]");
  peer.Deliver(Flush(101, 2, 0));
  ExpectRefused("NAK access 101 msn 1", kAccessErrorEvent);
}

TEST_F(ResponderFlushTest, BeyondTheRegion) {
  peer.Deliver(Flush(100, 1, 0,
                     static_cast<uint32_t>(peer.target->bytes.size()) - 4, 8));
  ExpectRefused("NAK access 100 msn 0", kAccessErrorEvent);
}

TEST_F(ResponderFlushTest, AMediumThatFails) {
  peer.target->faulty = true;
  peer.Deliver(Flush(100, 2, 0));
  ExpectRefused("NAK operational 100 msn 0", kFatalEvent);
}

TEST(ResponderFlushOfferTest, OnlyIfTheDeviceHasIt) {
  WirePeer::Options options;
  options.memory_placement = false;
  WirePeer peer(options);
  peer.attributes.access_flags |= kAccessFlushGlobal;
  peer.Connect();
  wire::Headers headers = peer.Write(kFlush, 100, 0, 8);
  headers.feth = {1, 0};
  peer.Deliver(headers);
  EXPECT_EQ(peer.Transmit(), "NAK invalid-request 100 msn 0");
}

}  // namespace
}  // namespace transport
