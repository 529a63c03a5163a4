// Requests in order: what is executed, what is answered, what is refused.
#include <cerrno>

#include "gtest/gtest.h"
#include "transport/testing/responder_fixture.h"

namespace transport {
namespace {

using enum wire::Operation;

// --- SEND.

TEST_F(ResponderTest, SendOnly) {
  peer.PostReceive(7, {100});
  peer.Deliver(peer.Request(kSendOnly, 100, true), 13);
  EXPECT_EQ(peer.TakeReceives(), "7 ok 13");
  EXPECT_EQ(Target(0, 14), [] {
    Bytes expected = WirePeer::Pattern(13);
    expected.push_back(0);
    return expected;
  }());
  EXPECT_EQ(peer.Transmit(), "ACK 100 msn 1");
  EXPECT_EQ(peer.Transmit(), "");
}

TEST_F(ResponderTest, SendWithoutAckReqIsNotAcknowledged) {
  peer.PostReceive(7, {100});
  peer.Deliver(peer.Request(kSendOnly, 100), 13);
  EXPECT_EQ(peer.TakeReceives(), "7 ok 13");
  EXPECT_EQ(peer.Transmit(), "");
}

TEST_F(ResponderTest, AcksCoalesce) {
  for (int i = 0; i < 3; ++i) peer.PostReceive(i, {100});
  peer.Deliver(peer.Request(kSendOnly, 100, true));
  peer.Deliver(peer.Request(kSendOnly, 101, true));
  peer.Deliver(peer.Request(kSendOnly, 102));
  EXPECT_EQ(peer.Transmit(), "ACK 102 msn 3");
}

TEST_F(ResponderTest, SendOfThreePacketsIntoThreeSges) {
  peer.PostReceive(7, {10, 300, 0, 290});
  peer.Deliver(peer.Request(kSendFirst, 100), 256, 1);
  peer.Deliver(peer.Request(kSendMiddle, 101), 256, 2);
  EXPECT_EQ(peer.TakeReceives(), "");
  peer.Deliver(peer.Request(kSendLast, 102, true), 88, 3);
  EXPECT_EQ(peer.TakeReceives(), "7 ok 600");
  Bytes expected = WirePeer::Pattern(256, 1);
  for (const Bytes& part :
       {WirePeer::Pattern(256, 2), WirePeer::Pattern(88, 3)}) {
    expected.insert(expected.end(), part.begin(), part.end());
  }
  EXPECT_EQ(Target(0, 600), expected);
  EXPECT_EQ(peer.Transmit(), "ACK 102 msn 1");
}

TEST_F(ResponderTest, AckOfAPacketInsideAMessage) {
  peer.PostReceive(7, {1000});
  peer.Deliver(peer.Request(kSendFirst, 100, true), 256);
  EXPECT_EQ(peer.Transmit(), "ACK 100 msn 0");
}

TEST_F(ResponderTest, EmptySendIntoEmptyReceive) {
  peer.PostReceive(7, {});
  peer.Deliver(peer.Request(kSendOnly, 100, true));
  EXPECT_EQ(peer.TakeReceives(), "7 ok 0");
  EXPECT_EQ(peer.Transmit(), "ACK 100 msn 1");
}

TEST_F(ResponderTest, ImmediateAndSolicited) {
  peer.PostReceive(7, {100});
  wire::Headers headers = peer.Request(kSendOnlyImm, 100);
  headers.imm_be = 4711;
  headers.bth.solicited = true;
  peer.Deliver(headers, 4);
  EXPECT_EQ(peer.TakeReceives(), "7 ok 4 imm 4711 solicited");

  peer.PostReceive(8, {300});
  peer.Deliver(peer.Request(kSendFirst, 101), 256);
  headers = peer.Request(kSendLastImm, 102);
  headers.imm_be = 5;
  peer.Deliver(headers, 1);
  EXPECT_EQ(peer.TakeReceives(), "8 ok 257 imm 5");
}

TEST_F(ResponderTest, SendWithInvalidate) {
  FakeMemory::Region& window = peer.memory.Add(0x9000, 64, WirePeer::kPd, 0);
  peer.PostReceive(7, {100});
  wire::Headers headers = peer.Request(kSendOnlyInvalidate, 100, true);
  headers.invalidate_rkey = window.rkey;
  peer.Deliver(headers, 4);
  EXPECT_EQ(peer.TakeReceives(), "7 ok 4 inv " + std::to_string(window.rkey));
  EXPECT_FALSE(window.valid);
  ASSERT_EQ(peer.memory.invalidations().size(), 1u);
  EXPECT_TRUE(peer.memory.invalidations()[0].remote);
  EXPECT_EQ(peer.Transmit(), "ACK 100 msn 1");

  // The same key a second time.
  peer.PostReceive(8, {100});
  headers.bth.psn = 101;
  peer.Deliver(headers, 4);
  EXPECT_EQ(peer.TakeReceives(), "8 status 6");
  EXPECT_EQ(peer.qp->state(), QpState::kErr);
  EXPECT_EQ(peer.TakeEvents(), "");
  EXPECT_EQ(peer.Transmit(), "");
  EXPECT_EQ(peer.qp->counters().fatal_naks_sent, 0u);
}

// A WRITE of one packet carries its immediate data, and takes a receive, which
// completes with the error. A WRITE of several packets is refused with its
// first one.
TEST(ResponderImmediateTest, WriteThatIsRefused) {
  for (const bool shared : {false, true}) {
    WirePeer::Options options;
    options.srq = shared;
    WirePeer peer(options);
    peer.Connect();
    if (shared) {
      peer.srq.queue.push_back({.wr_id = 7, .sges = {}});
    } else {
      peer.PostReceive(7, {100});
    }
    wire::Headers headers = peer.Write(kWriteOnlyImm, 100, 0, 8, true);
    headers.reth.rkey ^= 1;
    peer.Deliver(headers, 8);
    EXPECT_EQ(peer.Transmit(), "NAK access 100 msn 0");
    EXPECT_EQ(peer.TakeReceives(), "7 status 8");
    EXPECT_TRUE(peer.srq.queue.empty());
  }
  WirePeer peer{WirePeer::Options()};
  peer.Connect();
  peer.PostReceive(7, {100});
  wire::Headers headers = peer.Write(kWriteFirst, 100, 0, 258, true);
  headers.reth.rkey ^= 1;
  peer.Deliver(headers, 256);
  EXPECT_EQ(peer.Transmit(), "NAK access 100 msn 0");
  EXPECT_EQ(peer.TakeReceives(), "7 status 5");
}

TEST_F(ResponderTest, NoReceiveIsRnrAndNothingMoves) {
  peer.Deliver(peer.Request(kSendOnly, 100, true), 8);
  EXPECT_EQ(peer.Transmit(), "RNR 12 100 msn 0");
  // Packets behind it are not answered.
  peer.Deliver(peer.Request(kSendOnly, 101, true), 8);
  EXPECT_EQ(peer.Transmit(), "");
  peer.PostReceive(7, {8});
  peer.PostReceive(8, {8});
  EXPECT_EQ(peer.TakeReceives(), "");
  peer.Deliver(peer.Request(kSendOnly, 100, true), 8);
  EXPECT_EQ(peer.TakeReceives(), "7 ok 8; 8 ok 8");
  EXPECT_EQ(peer.Transmit(), "ACK 101 msn 2");
  EXPECT_EQ(peer.qp->counters().rnr_naks_sent, 1u);
  EXPECT_EQ(peer.qp->counters().sequence_naks_sent, 0u);
  EXPECT_EQ(peer.qp->counters().fatal_naks_sent, 0u);
}

TEST_F(ResponderTest, RnrAcknowledgesWhatPrecedesIt) {
  peer.PostReceive(7, {8});
  peer.Deliver(peer.Request(kSendOnly, 100, true), 8);
  peer.Deliver(peer.Request(kSendOnly, 101, true), 8);
  EXPECT_EQ(peer.Transmit(), "RNR 12 101 msn 1");
}

TEST_F(ResponderTest, TooLongForTheReceive) {
  peer.PostReceive(7, {300});
  peer.PostReceive(8, {300});
  peer.Deliver(peer.Request(kSendFirst, 100), 256);
  peer.Deliver(peer.Request(kSendLast, 101, true), 45);
  EXPECT_EQ(peer.TakeReceives(), "7 status 1; 8 status 5");
  ExpectRefused("NAK invalid-request 101 msn 0", "");
}

TEST_F(ResponderTest, ReceiveWithABadKey) {
  const Sge sge = {peer.target->va, 100, 0xbad};
  ASSERT_EQ(peer.qp->PostReceive({7, {&sge, 1}}, peer.now), 0);
  peer.Deliver(peer.Request(kSendOnly, 100, true), 8);
  EXPECT_EQ(peer.TakeReceives(), "7 status 4");
  ExpectRefused("NAK operational 100 msn 0", "");
}

TEST_F(ResponderTest, ReceiveIntoPagesThatAreGone) {
  peer.PostReceive(7, {100});
  peer.target->faulty = true;
  peer.Deliver(peer.Request(kSendOnly, 100, true), 8);
  EXPECT_EQ(peer.TakeReceives(), "7 status 4");
  ExpectRefused("NAK operational 100 msn 0", "");
}

TEST_F(ResponderTest, ReceiveKeyIsNotCheckedWithoutPayload) {
  const Sge sge = {peer.target->va, 100, 0xbad};
  ASSERT_EQ(peer.qp->PostReceive({7, {&sge, 1}}, peer.now), 0);
  peer.Deliver(peer.Request(kSendOnly, 100, true), 0);
  EXPECT_EQ(peer.TakeReceives(), "7 ok 0");
}

// --- WRITE.

TEST_F(ResponderTest, WriteOnly) {
  peer.Deliver(peer.Write(kWriteOnly, 100, 20, 7, true), 7);
  EXPECT_EQ(Target(20, 7), WirePeer::Pattern(7));
  EXPECT_EQ(peer.Transmit(), "ACK 100 msn 1");
  EXPECT_EQ(peer.TakeReceives(), "");
}

TEST_F(ResponderTest, WriteOfThreePackets) {
  peer.target->piece = 100;  // a list of spans
  peer.Deliver(peer.Write(kWriteFirst, 100, 8, 522), 256, 1);
  peer.Deliver(peer.Request(kWriteMiddle, 101), 256, 2);
  peer.Deliver(peer.Request(kWriteLast, 102, true), 10, 3);
  EXPECT_EQ(Target(8, 256), WirePeer::Pattern(256, 1));
  EXPECT_EQ(Target(264, 256), WirePeer::Pattern(256, 2));
  EXPECT_EQ(Target(520, 10), WirePeer::Pattern(10, 3));
  EXPECT_EQ(Target(530, 1), Bytes{0});
  EXPECT_EQ(peer.Transmit(), "ACK 102 msn 1");
}

TEST_F(ResponderTest, NextPacketsColdMemoryIsFetched) {
  using Hints = std::vector<bool>;
  const auto write = [this](uint32_t psn) {
    peer.Deliver(peer.Write(kWriteFirst, psn, 8, 522), 256);
    peer.Deliver(peer.Request(kWriteMiddle, psn + 1), 256);
    peer.Deliver(peer.Request(kWriteLast, psn + 2), 10);
  };
  write(100);
  EXPECT_EQ(peer.memory.more(), Hints({false, false, false}));
  peer.target->cold = true;
  peer.memory.ForgetMore();
  write(103);
  EXPECT_EQ(peer.memory.more(), Hints({true, true, false}));
  // A receive may be in several pieces, and longer than the message.
  peer.memory.ForgetMore();
  peer.PostReceive(1, {300, 300});
  peer.Deliver(peer.Request(kSendFirst, 106), 256);
  peer.Deliver(peer.Request(kSendLast, 107), 100);
  EXPECT_EQ(peer.memory.more(), Hints({true, false, false}));
}

TEST_F(ResponderTest, WriteWithImmediate) {
  peer.PostReceive(7, {});
  wire::Headers headers = peer.Write(kWriteOnlyImm, 100, 0, 5, true);
  headers.imm_be = 99;
  headers.bth.solicited = true;
  peer.Deliver(headers, 5);
  EXPECT_EQ(peer.TakeReceives(), "7 written 5 imm 99 solicited");
  EXPECT_EQ(Target(0, 5), WirePeer::Pattern(5));

  peer.PostReceive(8, {});
  peer.Deliver(peer.Write(kWriteFirst, 101, 0, 258), 256);
  headers = peer.Request(kWriteLastImm, 102, true);
  headers.imm_be = 98;
  peer.Deliver(headers, 2);
  EXPECT_EQ(peer.TakeReceives(), "8 written 258 imm 98");
  EXPECT_EQ(peer.Transmit(), "ACK 102 msn 2");
}

TEST_F(ResponderTest, WriteWithImmediateWithoutReceive) {
  peer.Deliver(peer.Write(kWriteFirst, 100, 0, 258), 256, 1);
  peer.Deliver(peer.Request(kWriteLastImm, 101, true), 2, 7);
  EXPECT_EQ(peer.Transmit(), "RNR 12 101 msn 0");
  EXPECT_EQ(Target(256, 2), (Bytes{0, 0}));
  peer.PostReceive(7, {});
  peer.Deliver(peer.Request(kWriteLastImm, 101, true), 2, 7);
  EXPECT_EQ(Target(256, 2), (Bytes{7, 8}));
  EXPECT_EQ(peer.TakeReceives(), "7 written 258 imm 0");
  EXPECT_EQ(peer.Transmit(), "ACK 101 msn 1");
}

TEST_F(ResponderTest, EmptyWriteChecksNoKey) {
  wire::Headers headers = peer.Write(kWriteOnly, 100, 0, 0, true);
  headers.reth.rkey = 0xbad;
  peer.Deliver(headers);
  EXPECT_EQ(peer.Transmit(), "ACK 100 msn 1");
  EXPECT_EQ(peer.qp->state(), QpState::kRts);
}

TEST_F(ResponderTest, WriteWithBadKey) {
  peer.PostReceive(7, {8});
  wire::Headers headers = peer.Write(kWriteOnly, 100, 0, 4, true);
  headers.reth.rkey = 0xbad;
  peer.Deliver(headers, 4);
  EXPECT_EQ(peer.TakeReceives(), "7 status 5");
  ExpectRefused("NAK access 100 msn 0", kAccessErrorEvent);
}

TEST_F(ResponderTest, WriteBeyondTheRegion) {
  // Only its last packet would be outside: refused with the first.
  peer.Deliver(peer.Write(kWriteFirst, 100, 64 * 1024 - 256, 257), 256);
  EXPECT_TRUE(Untouched());
  ExpectRefused("NAK access 100 msn 0", kAccessErrorEvent);
}

TEST_F(ResponderTest, WriteThatWrapsAround) {
  wire::Headers headers = peer.Write(kWriteOnly, 100, 0, 4, true);
  headers.reth.va = ~uint64_t{0} - 1;
  peer.Deliver(headers, 4);
  ExpectRefused("NAK access 100 msn 0", kAccessErrorEvent);
}

TEST_F(ResponderTest, WriteToAnotherProtectionDomain) {
  FakeMemory::Region& other =
      peer.memory.Add(0x9000, 64, WirePeer::kPd + 1, WirePeer::kAllAccess);
  wire::Headers headers = peer.Write(kWriteOnly, 100, 0, 4, true);
  headers.reth = {other.va, other.rkey, 4};
  peer.Deliver(headers, 4);
  ExpectRefused("NAK access 100 msn 0", kAccessErrorEvent);
}

TEST_F(ResponderTest, WriteWithoutTheRegionsRight) {
  peer.target->access = kAccessLocalWrite | kAccessRemoteRead;
  peer.Deliver(peer.Write(kWriteOnly, 100, 0, 4, true), 4);
  EXPECT_TRUE(Untouched());
  ExpectRefused("NAK access 100 msn 0", kAccessErrorEvent);
}

TEST_F(ResponderTest, WriteToPagesThatAreGone) {
  peer.target->faulty = true;
  peer.Deliver(peer.Write(kWriteOnly, 100, 0, 4, true), 4);
  ExpectRefused("NAK access 100 msn 0", kAccessErrorEvent);
}

TEST_F(ResponderTest, RegionGoesInTheMiddleOfAWrite) {
  peer.Deliver(peer.Write(kWriteFirst, 100, 0, 512), 256);
  peer.target->valid = false;
  peer.Deliver(peer.Request(kWriteLast, 101, true), 256);
  EXPECT_EQ(Target(256, 1), Bytes{0});
  ExpectRefused("NAK access 101 msn 0", kAccessErrorEvent);
}

// --- What the queue pair does not offer.

TEST(ResponderRightsTest, QueuePairRights) {
  struct Case {
    uint32_t missing;
    wire::Headers (*request)(const WirePeer&);
    size_t payload;
  };
  const Case cases[] = {
      {kAccessRemoteWrite,
       [](const WirePeer& p) { return p.Write(kWriteOnly, 100, 0, 8); }, 8},
      {kAccessRemoteWrite,
       [](const WirePeer& p) { return p.Write(kAtomicWrite, 100, 0, 8); }, 8},
      {kAccessRemoteRead, [](const WirePeer& p) { return p.Read(100, 0, 8); },
       0},
      {kAccessRemoteAtomic,
       [](const WirePeer& p) { return p.Atomic(kFetchAdd, 100, 0, 8); }, 0},
  };
  for (const Case& c : cases) {
    WirePeer peer;
    peer.attributes.access_flags = WirePeer::kAllAccess & ~c.missing;
    peer.Connect();
    peer.Deliver(c.request(peer), c.payload);
    EXPECT_EQ(peer.Transmit(), "NAK invalid-request 100 msn 0");
    EXPECT_EQ(peer.TakeEvents(), kRequestErrorEvent);
    EXPECT_EQ(peer.qp->state(), QpState::kErr);
  }
}

// --- Sequence of opcodes and lengths by position.

struct Step {
  wire::Operation operation;
  size_t payload;
};

wire::Headers MakeStep(const WirePeer& peer, const Step& step, uint32_t psn) {
  switch (step.operation) {
    case kWriteFirst:
      return peer.Write(step.operation, psn, 0, 600);
    case kWriteOnly:
      return peer.Write(step.operation, psn, 0,
                        static_cast<uint32_t>(step.payload));
    case kReadRequest:
      return peer.Read(psn, 0, 8);
    case kFetchAdd:
      return peer.Atomic(kFetchAdd, psn, 0, 1);
    default:
      return peer.Request(step.operation, psn);
  }
}

TEST(ResponderSequenceTest, InvalidSequences) {
  const std::vector<std::vector<Step>> sequences = {
      {{kSendMiddle, 256}},
      {{kSendLast, 5}},
      {{kSendLastImm, 5}},
      {{kSendLastInvalidate, 5}},
      {{kWriteMiddle, 256}},
      {{kWriteLast, 5}},
      {{kWriteLastImm, 5}},
      {{kSendFirst, 256}, {kSendFirst, 256}},
      {{kSendFirst, 256}, {kSendOnly, 5}},
      {{kSendFirst, 256}, {kWriteMiddle, 256}},
      {{kSendFirst, 256}, {kWriteOnly, 5}},
      {{kSendFirst, 256}, {kReadRequest, 0}},
      {{kSendFirst, 256}, {kFetchAdd, 0}},
      {{kWriteFirst, 256}, {kWriteFirst, 256}},
      {{kWriteFirst, 256}, {kSendMiddle, 256}},
      {{kWriteFirst, 256}, {kSendLast, 5}},
      {{kWriteFirst, 256}, {kSendOnly, 5}},
      {{kWriteFirst, 256}, {kWriteOnly, 5}},
      {{kWriteFirst, 256}, {kReadRequest, 0}},
      // Lengths.
      {{kSendFirst, 255}},
      {{kSendFirst, 257}},
      {{kSendFirst, 0}},
      {{kSendFirst, 256}, {kSendMiddle, 255}},
      {{kSendFirst, 256}, {kSendLast, 0}},
      {{kSendFirst, 256}, {kSendLast, 257}},
      {{kSendOnly, 257}},
      {{kWriteOnly, 257}},
      {{kWriteFirst, 252}},
      {{kReadRequest, 4}},
      {{kFetchAdd, 4}},
      // 600 bytes were announced.
      {{kWriteFirst, 256}, {kWriteLast, 88}},
      {{kWriteFirst, 256}, {kWriteMiddle, 256}, {kWriteLast, 87}},
      {{kWriteFirst, 256}, {kWriteMiddle, 256}, {kWriteLast, 89}},
      {{kWriteFirst, 256}, {kWriteMiddle, 256}, {kWriteMiddle, 256}},
  };
  for (const std::vector<Step>& sequence : sequences) {
    WirePeer peer;
    peer.Connect();
    peer.PostReceive(7, {4096});
    uint32_t psn = 100;
    for (const Step& step : sequence) {
      EXPECT_EQ(peer.qp->state(), QpState::kRts);
      peer.Deliver(MakeStep(peer, step, psn), step.payload);
      ++psn;
    }
    EXPECT_EQ(peer.Transmit(),
              "NAK invalid-request " + std::to_string(psn - 1) + " msn 0")
        << static_cast<int>(sequence.back().operation) << " with "
        << sequence.back().payload;
    EXPECT_EQ(peer.TakeEvents(), kRequestErrorEvent);
    EXPECT_EQ(peer.TakeReceives(), "7 status 5");
    EXPECT_EQ(peer.qp->state(), QpState::kErr);
  }
}

constexpr wire::Operation kReserved[] = {kReserved15, kReserved18, kReserved19,
                                         kReserved1a, kReserved1b, kReserved1e,
                                         kReserved1f};

// Reserved opcodes are errors of class C (9.9.3), whatever else is in the
// packet.
TEST(ResponderSequenceTest, ReservedOpcodes) {
  for (const wire::Operation operation : kReserved) {
    for (const size_t payload : {0, 4, 16, 300}) {
      WirePeer peer;
      peer.Connect();
      peer.PostReceive(7, {4096});
      peer.Deliver(peer.Request(operation, 100), payload);
      EXPECT_EQ(peer.Transmit(), "NAK invalid-request 100 msn 0");
      EXPECT_EQ(peer.TakeEvents(), kRequestErrorEvent);
      EXPECT_EQ(peer.TakeReceives(), "7 status 5");
      EXPECT_EQ(peer.qp->state(), QpState::kErr);
    }
  }
}

TEST(ResponderSequenceTest, ReservedOpcodesWithinAMessage) {
  for (const wire::Operation operation : kReserved) {
    WirePeer peer;
    peer.Connect();
    peer.PostReceive(7, {4096});
    peer.Deliver(peer.Request(kSendFirst, 100), 256);
    peer.Deliver(peer.Request(operation, 101), 8);
    EXPECT_EQ(peer.Transmit(), "NAK invalid-request 101 msn 0");
    EXPECT_EQ(peer.TakeReceives(), "7 status 5");
  }
}

TEST_F(ResponderTest, ReservedOpcodesThatComeLate) {
  peer.Deliver(peer.Write(kWriteOnly, 100, 0, 0, true));
  peer.Deliver(peer.Read(101, 0, 8));
  peer.Transmit();
  for (const wire::Operation operation : kReserved) {
    peer.Deliver(peer.Request(operation, 100, true), 8);
    peer.Deliver(peer.Request(operation, 101, true), 8);
  }
  EXPECT_EQ(peer.Transmit(), "");
  EXPECT_EQ(peer.TakeEvents(), "");
  EXPECT_EQ(peer.qp->state(), QpState::kRts);
  EXPECT_EQ(peer.qp->counters().dropped_window, 14u);
}

TEST(ResponderSequenceTest, WriteLengthMustMatchItsOnePacket) {
  for (uint32_t announced : {0u, 7u, 9u, 300u}) {
    WirePeer peer;
    peer.Connect();
    peer.Deliver(peer.Write(kWriteOnly, 100, 0, announced), 8);
    EXPECT_EQ(peer.Transmit(), "NAK invalid-request 100 msn 0") << announced;
  }
}

TEST(ResponderSequenceTest, FirstOfAWriteThatFitsOnePacket) {
  WirePeer peer;
  peer.Connect();
  peer.Deliver(peer.Write(kWriteFirst, 100, 0, 256), 256);
  EXPECT_EQ(peer.Transmit(), "NAK invalid-request 100 msn 0");
}

// --- The end.

TEST_F(ResponderTest, FlushGivesTheTakenReceiveBackFirst) {
  peer.PostReceive(7, {1000});
  peer.PostReceive(8, {1000});
  peer.PostReceive(9, {1000});
  peer.Deliver(peer.Request(kSendFirst, 100), 256);
  ASSERT_EQ(peer.Modify(QpState::kErr), 0);
  EXPECT_EQ(peer.TakeReceives(), "7 status 5; 8 status 5; 9 status 5");
  EXPECT_EQ(peer.TakeEvents(), "");
  peer.PostReceive(10, {10});
  EXPECT_EQ(peer.TakeReceives(), "10 status 5");
}

TEST_F(ResponderTest, AckThatIsDueSurvivesTheErrorState) {
  peer.PostReceive(7, {8});
  peer.Deliver(peer.Request(kSendOnly, 100, true), 8);
  ASSERT_EQ(peer.Modify(QpState::kErr), 0);
  EXPECT_EQ(peer.Transmit(), "ACK 100 msn 1");
}

TEST_F(ResponderTest, ReadsAreNotAnsweredInTheErrorState) {
  peer.Deliver(peer.Read(100, 0, 8));
  peer.Deliver(peer.Write(kWriteOnly, 101, 0, 0, true));
  ASSERT_EQ(peer.Modify(QpState::kErr), 0);
  EXPECT_EQ(peer.Transmit(), "");
  peer.Deliver(peer.Read(102, 0, 8));
  EXPECT_EQ(peer.Transmit(), "");
  EXPECT_EQ(peer.qp->counters().dropped_state, 1u);
}

TEST_F(ResponderTest, ResetForgetsAndStartsAnew) {
  peer.PostReceive(7, {1000});
  peer.PostReceive(8, {1000});
  peer.Deliver(peer.Request(kSendFirst, 100, true), 256);
  ASSERT_EQ(peer.Modify(QpState::kReset), 0);
  EXPECT_EQ(peer.TakeReceives(), "");
  EXPECT_EQ(peer.Transmit(), "");
  peer.attributes.rq_psn = 0xffffff;
  peer.Connect();
  peer.PostReceive(9, {10});
  peer.PostReceive(10, {10});
  peer.Deliver(peer.Request(kSendOnly, 0xffffff, true), 2);
  peer.Deliver(peer.Request(kSendOnly, 0, true), 2);
  EXPECT_EQ(peer.TakeReceives(), "9 ok 2; 10 ok 2");
  EXPECT_EQ(peer.Transmit(), "ACK 0 msn 2");
}

TEST_F(ResponderTest, ReceiveQueueOverrun) {
  peer.recv_cq.capacity = 0;
  peer.PostReceive(7, {10});
  peer.Deliver(peer.Request(kSendOnly, 100, true), 2);
  EXPECT_EQ(peer.qp->state(), QpState::kErr);
  EXPECT_EQ(peer.TakeEvents(), "1");
}

TEST(ResponderSrqTest, SharedReceives) {
  WirePeer peer({.srq = true});
  peer.Connect();
  EXPECT_EQ(peer.PostReceive(7, {8}), EINVAL);
  peer.Deliver(peer.Request(kSendOnly, 100, true), 8);
  EXPECT_EQ(peer.Transmit(), "RNR 12 100 msn 0");

  // An SRQ has its own protection domain.
  FakeMemory::Region& region =
      peer.memory.Add(0x9000, 64, WirePeer::kPd + 1, kAccessLocalWrite);
  ReceiveWqe wqe;
  wqe.wr_id = 70;
  wqe.pd = region.pd;
  wqe.sges = {{region.va, 64, region.lkey}};
  peer.srq.queue.push_back(wqe);
  wqe.wr_id = 71;
  peer.srq.queue.push_back(wqe);
  wqe.wr_id = 72;
  peer.srq.queue.push_back(wqe);
  peer.Deliver(peer.Request(kSendOnly, 100, true), 8);
  EXPECT_EQ(peer.Transmit(), "ACK 100 msn 1");
  EXPECT_EQ(peer.TakeReceives(), "70 ok 8");

  peer.Deliver(peer.Request(kSendFirst, 101), 256);  // too long for it
  EXPECT_EQ(peer.TakeReceives(), "71 status 1");
  EXPECT_EQ(peer.srq.queue.size(), 1u);  // not flushed
  EXPECT_EQ(peer.TakeEvents(), "16");
  EXPECT_EQ(peer.Modify(QpState::kErr), 0);
  EXPECT_EQ(peer.TakeEvents(), "");
}

// --- Faults on command.

class RefusedTest : public ResponderTest {
 protected:
  RefusedTest() {
    refused.Connect();
    for (int i = 0; i < 4; ++i) refused.PostReceive(i, {600});
  }

  WirePeer refused{WirePeer::Options{.may_refuse = true}};
};

TEST_F(RefusedTest, RnrNakUntilThePsnComesAgain) {
  refused.events.refused[101] = wire::MakeRnrSyndrome(20);
  refused.Deliver(refused.Request(kSendOnly, 100, true), 10);
  refused.Deliver(refused.Request(kSendOnly, 101, true), 10);
  refused.Deliver(refused.Request(kSendOnly, 102, true), 10);
  EXPECT_EQ(refused.TakeReceives(), "0 ok 10");
  EXPECT_EQ(refused.Transmit(), "RNR 20 101 msn 1");
  EXPECT_EQ(refused.Transmit(), "");
  EXPECT_EQ(refused.qp->counters().rnr_naks_sent, 1u);
  EXPECT_EQ(refused.qp->counters().sequence_naks_sent, 0u);
  refused.Deliver(refused.Request(kSendOnly, 101, true), 10);
  EXPECT_EQ(refused.TakeReceives(), "1 ok 10; 2 ok 10");
  EXPECT_EQ(refused.Transmit(), "ACK 102 msn 3");
}

TEST_F(RefusedTest, InsideAMessageWhichThenContinues) {
  refused.events.refused[101] = wire::MakeRnrSyndrome(12);
  refused.Deliver(refused.Request(kSendFirst, 100), 256, 1);
  refused.Deliver(refused.Request(kSendMiddle, 101), 256, 2);
  EXPECT_EQ(refused.Transmit(), "RNR 12 101 msn 0");
  refused.Deliver(refused.Request(kSendMiddle, 101), 256, 2);
  refused.Deliver(refused.Request(kSendLast, 102, true), 8, 3);
  EXPECT_EQ(refused.TakeReceives(), "0 ok 520");
  EXPECT_EQ(refused.Transmit(), "ACK 102 msn 1");
}

TEST_F(RefusedTest, SequenceNak) {
  refused.events.refused[100] =
      wire::MakeNakSyndrome(wire::NakCode::kPsnSequence);
  refused.Deliver(refused.Request(kSendOnly, 100, true), 10);
  EXPECT_EQ(refused.TakeReceives(), "");
  EXPECT_EQ(refused.Transmit(), "NAK sequence 100 msn 0");
  refused.Deliver(refused.Request(kSendOnly, 100, true), 10);
  EXPECT_EQ(refused.TakeReceives(), "0 ok 10");
  EXPECT_EQ(refused.Transmit(), "ACK 100 msn 1");
}

TEST_F(RefusedTest, OtherNaksAreFatal) {
  const struct {
    wire::NakCode code;
    const char* text;
    const char* event;
  } cases[] = {
      {wire::NakCode::kInvalidRequest, "NAK invalid-request 101 msn 1",
       kRequestErrorEvent},
      {wire::NakCode::kRemoteAccess, "NAK access 101 msn 1", kAccessErrorEvent},
      {wire::NakCode::kRemoteOperational, "NAK operational 101 msn 1",
       kFatalEvent},
  };
  for (const auto& each : cases) {
    WirePeer one(WirePeer::Options{.may_refuse = true});
    one.events.refused[101] = wire::MakeNakSyndrome(each.code);
    one.Connect();
    one.PostReceive(0, {600});
    one.PostReceive(1, {600});
    one.Deliver(one.Request(kSendOnly, 100, true), 10);
    one.Deliver(one.Request(kSendOnly, 101, true), 10);
    EXPECT_EQ(one.qp->state(), QpState::kErr);
    EXPECT_EQ(one.TakeEvents(), each.event);
    EXPECT_EQ(one.Transmit(), each.text);
    EXPECT_EQ(one.Transmit(), "");
    EXPECT_EQ(one.qp->Report().first_error, Reason::kFaultOnCommand);
    EXPECT_EQ(one.TakeReceives(), "0 ok 10; 1 status 5");
  }
}

// A packet that came beyond a gap is refused when it would be executed.
TEST_F(RefusedTest, BufferedPackets) {
  refused.events.refused[101] = wire::MakeRnrSyndrome(20);
  refused.Deliver(refused.Request(kSendOnly, 101, true), 10);
  EXPECT_EQ(refused.Transmit(), "NAK sequence 100 msn 0");
  refused.Deliver(refused.Request(kSendOnly, 100, true), 10);
  EXPECT_EQ(refused.TakeReceives(), "0 ok 10");
  EXPECT_EQ(refused.Transmit(), "RNR 20 101 msn 1");
  refused.events.refused[101] =
      wire::MakeNakSyndrome(wire::NakCode::kRemoteOperational);
  refused.Deliver(refused.Request(kSendOnly, 102, true), 10);
  refused.Deliver(refused.Request(kSendOnly, 101, true), 10);
  EXPECT_EQ(refused.Transmit(), "NAK operational 101 msn 1");
  EXPECT_EQ(refused.qp->state(), QpState::kErr);
}

// Nothing of a refused request reaches memory.
TEST_F(RefusedTest, NothingIsWritten) {
  refused.events.refused[100] = wire::MakeRnrSyndrome(20);
  refused.Deliver(refused.Write(kWriteOnly, 100, 0, 64), 64);
  EXPECT_EQ(refused.Transmit(), "RNR 20 100 msn 0");
  for (const uint8_t byte : refused.target->bytes) ASSERT_EQ(byte, 0);
}

}  // namespace
}  // namespace transport
