// READs and atomics: what is requested, and what is done with responses.
#include <algorithm>

#include "gtest/gtest.h"
#include "transport/testing/requester_peer.h"

namespace transport {
namespace {

using wire::Operation;

constexpr Operation kFirst = Operation::kReadResponseFirst;
constexpr Operation kMiddle = Operation::kReadResponseMiddle;
constexpr Operation kLast = Operation::kReadResponseLast;
constexpr Operation kOnly = Operation::kReadResponseOnly;

std::vector<uint8_t> Counting(uint8_t first, size_t n) {
  std::vector<uint8_t> bytes(n);
  for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<uint8_t>(first + i);
  return bytes;
}

TEST(RequesterReadTest, PlacesResponsesInOrder) {
  RequesterPeer peer;
  peer.Connect();
  peer.Read(1, 600, kSendSignaled, 1000);
  EXPECT_EQ(peer.Transmit(), "READ_REQUEST 100 A va 0 len 600");
  // A READ takes the PSNs of its responses.
  peer.Send(2, 1);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 103 A [1]");
  peer.ReadResponse(kFirst, 100, 256, 1);
  EXPECT_EQ(peer.Bytes(1000, 256), Counting(1, 256));
  peer.ReadResponse(kMiddle, 101, 256, 2);
  peer.ReadResponse(kMiddle, 101, 256, 99);  // a duplicate is not placed
  EXPECT_EQ(peer.Bytes(1256, 256), Counting(2, 256));
  EXPECT_EQ(peer.Completions(), "");
  peer.ReadResponse(kLast, 102, 88, 3);
  EXPECT_EQ(peer.Bytes(1512, 88), Counting(3, 88));
  EXPECT_EQ(peer.Bytes(1600, 1)[0], 1600 % 251);
  EXPECT_EQ(peer.Completions(), "1 ok 600");
  peer.Ack(103);
  EXPECT_EQ(peer.Completions(), "2 ok");
  EXPECT_EQ(peer.in_flight(), 0u);
}

// The ACK of a request that follows an atomic or a READ, in one burst with
// their responses, is not processed before them.
TEST(RequesterReadTest, AcknowledgementBehindResponses) {
  RequesterPeer peer;
  peer.Connect();
  peer.FetchAdd(1, 1);
  peer.Send(2, 1);
  peer.Transmit();
  peer.DeliverBatch({peer.Response(Operation::kAtomicAcknowledge, 100),
                     peer.Response(Operation::kAcknowledge, 101)});
  EXPECT_EQ(peer.Completions(), "1 ok 8; 2 ok");
  EXPECT_FALSE(peer.path().has_lost());
  EXPECT_EQ(peer.Transmit(), "");

  peer.FetchAdd(3, 1);
  peer.FetchAdd(4, 1);
  peer.Send(5, 1);
  peer.Transmit();
  wire::Headers rnr = peer.Response(Operation::kAcknowledge, 104);
  rnr.aeth.syndrome = wire::MakeRnrSyndrome(14);
  peer.DeliverBatch({peer.Response(Operation::kAtomicAcknowledge, 102),
                     peer.Response(Operation::kAtomicAcknowledge, 103), rnr});
  EXPECT_EQ(peer.Completions(), "3 ok 8; 4 ok 8");
  EXPECT_EQ(peer.Transmit(), "") << "it waits for the peer's timer";
  EXPECT_FALSE(peer.path().has_lost());
}

TEST(RequesterReadTest, NextPacketsColdMemoryIsFetched) {
  using Hints = std::vector<bool>;
  RequesterPeer peer;
  peer.Connect();
  for (const bool cold : {false, true}) {
    peer.local->cold = cold;
    peer.memory.ForgetMore();
    peer.Read(1, 600, kSendSignaled, 1000);
    peer.Transmit();
    const uint32_t psn = cold ? 103 : 100;
    peer.ReadResponse(kFirst, psn, 256, 1);
    peer.ReadResponse(kMiddle, psn + 1, 256, 2);
    peer.ReadResponse(kLast, psn + 2, 88, 3);
    EXPECT_EQ(peer.memory.more(), Hints({cold, cold, false}));
  }
}

TEST(RequesterReadTest, ResponseAcknowledgesWhatIsBeforeIt) {
  RequesterPeer peer;
  peer.Connect();
  peer.Send(1, 1);
  peer.Write(2, 600);
  peer.Read(3, 1);
  peer.FetchAdd(4, 1);
  peer.Transmit();
  peer.ReadResponse(kOnly, 104, 1);
  EXPECT_EQ(peer.Completions(), "1 ok; 2 ok; 3 ok 1");
  peer.AtomicAck(105, 5);
  EXPECT_EQ(peer.Completions(), "4 ok 8");
}

TEST(RequesterReadTest, SplitsLongReadsByWindowAndSlots) {
  RequesterPeer peer;
  peer.attributes.max_rd_atomic = 4;
  peer.Connect();
  peer.Read(1, 1 << 20);
  peer.Transmit();
  // 256 packets of 512 bytes fill the window, in four requests.
  ASSERT_EQ(peer.sent.size(), 4u);
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(peer.sent[i].psn, 100 + 64 * i);
    EXPECT_EQ(peer.sent[i].length, 64u * 256);
  }
  EXPECT_EQ(peer.in_flight(), Path::kInitialWindow);
  // The first is answered: the next can be requested.
  for (uint32_t i = 0; i < 64; ++i) {
    EXPECT_EQ(peer.Transmit(), "");
    peer.ReadResponse(i == 0 ? kFirst : i < 63 ? kMiddle : kLast, 100 + i, 256);
  }
  peer.Transmit();
  ASSERT_EQ(peer.sent.size(), 1u);
  EXPECT_EQ(peer.sent[0].psn, 100u + 256);
  EXPECT_GE(peer.sent[0].length, 64u * 256);
  EXPECT_LE(peer.in_flight(), peer.path().window());
}

TEST(RequesterReadTest, OneSlotAsksForAWindowAtOnce) {
  RequesterPeer peer;
  peer.attributes.max_rd_atomic = 1;
  peer.Connect();
  peer.Read(1, 1 << 20);
  EXPECT_EQ(peer.Transmit(), "READ_REQUEST 100 A va 0 len 65536");
}

TEST(RequesterReadTest, SlotsBoundReadsAndAtomics) {
  RequesterPeer peer;
  peer.attributes.max_rd_atomic = 2;
  peer.Connect();
  peer.Read(1, 1);
  peer.FetchAdd(2, 1);
  peer.Read(3, 1);
  peer.Send(4, 1);
  EXPECT_EQ(peer.Transmit(),
            "READ_REQUEST 100 A va 0 len 1; FETCH_ADD 101 A va 0 add 1");
  peer.ReadResponse(kOnly, 100, 1);
  EXPECT_EQ(peer.Transmit(),
            "READ_REQUEST 102 A va 0 len 1; SEND_ONLY 103 A [1]");
}

TEST(RequesterReadTest, NoSlotsMeansNoReads) {
  RequesterPeer peer;
  peer.attributes.max_rd_atomic = 0;
  peer.Connect();
  peer.Send(1, 1);
  peer.Read(2, 1);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 100 [1]; SEND_ONLY 100 A [1]");
  peer.Ack(100);
  EXPECT_EQ(peer.Completions(), "1 ok; 2 status 2");
}

TEST(RequesterReadTest, AsksAgainFromTheMissingPacket) {
  RequesterPeer peer;
  peer.Connect();
  peer.Read(1, 1280);
  peer.Transmit();
  peer.ReadResponse(kFirst, 100, 256, 1);
  peer.ReadResponse(kMiddle, 102, 256, 3);  // 101 is missing
  EXPECT_EQ(peer.Bytes(512, 256), Counting(3, 256));
  EXPECT_EQ(peer.Transmit(), "READ_REQUEST 101 A va 256 len 256");
  // The rest of the first response causes no further requests.
  peer.ReadResponse(kMiddle, 103, 256, 4);
  peer.ReadResponse(kLast, 104, 256, 5);
  EXPECT_EQ(peer.Transmit(), "");
  EXPECT_EQ(peer.Completions(), "");
  EXPECT_EQ(peer.in_flight(), 256 + Path::kPacketOverhead);
  peer.ReadResponse(kOnly, 101, 256, 2);
  EXPECT_EQ(peer.Completions(), "1 ok 1280");
  EXPECT_EQ(peer.Bytes(256, 256), Counting(2, 256));
  EXPECT_EQ(peer.Bytes(1024, 256), Counting(5, 256));
  EXPECT_EQ(peer.in_flight(), 0u);
  EXPECT_EQ(peer.qp->counters().retransmitted, 1u);
}

TEST(RequesterReadTest, AnotherLossInTheSameResponseIsRequestedAgain) {
  RequesterPeer peer;
  peer.Connect();
  peer.Read(1, 1280);
  peer.Transmit();
  peer.ReadResponse(kMiddle, 101, 256);
  EXPECT_EQ(peer.Transmit(), "READ_REQUEST 100 A va 0 len 256");
  // Only one part of a READ is requested at a time: a peer need not repeat data
  // before the part that it has repeated last.
  peer.ReadResponse(kMiddle, 103, 256);
  EXPECT_EQ(peer.Transmit(), "");
  peer.ReadResponse(kOnly, 100, 256);
  EXPECT_EQ(peer.Transmit(), "READ_REQUEST 102 A va 512 len 256");
  peer.ReadResponse(kLast, 104, 256);
  EXPECT_EQ(peer.Transmit(), "");
  peer.ReadResponse(kOnly, 102, 256);
  EXPECT_EQ(peer.Completions(), "1 ok 1280");
}

TEST(RequesterReadTest, LossOfARepeatedPartShowsInTheSameResponse) {
  RequesterPeer peer;
  peer.Connect();
  peer.Read(1, 1280);
  peer.Transmit();
  peer.ReadResponse(kLast, 104, 256);
  EXPECT_EQ(peer.Transmit(), "READ_REQUEST 100 A va 0 len 1024");
  peer.ReadResponse(kFirst, 100, 256);
  peer.ReadResponse(kLast, 103, 256);
  EXPECT_EQ(peer.Transmit(), "READ_REQUEST 101 A va 256 len 512");
}

TEST(RequesterReadTest, LossOfARepeatedPartShowsInALaterResponse) {
  RequesterPeer peer;
  peer.Connect();
  peer.Read(1, 512);
  peer.Read(2, 256);
  peer.Transmit();
  peer.ReadResponse(kLast, 101, 256);
  EXPECT_EQ(peer.Transmit(), "READ_REQUEST 100 A va 0 len 256");
  peer.Read(3, 256);
  EXPECT_EQ(peer.Transmit(), "READ_REQUEST 103 A va 0 len 256");
  peer.ReadResponse(kOnly, 102, 256);
  EXPECT_EQ(peer.Transmit(), "");
  peer.ReadResponse(kOnly, 103, 256);
  EXPECT_EQ(peer.Transmit(), "READ_REQUEST 100 A va 0 len 256");
  peer.ReadResponse(kOnly, 100, 256);
  EXPECT_EQ(peer.Completions(), "1 ok 512; 2 ok 256; 3 ok 256");
}

// Late responses were not lost: once that has been seen, gaps wait.
TEST(RequesterReadTest, GapsWaitWherePacketsAreLate) {
  RequesterPeer peer;
  peer.Connect();
  peer.Read(1, 4096);
  peer.Transmit();
  peer.ReadResponse(kMiddle, 101, 256);
  EXPECT_EQ(peer.Transmit(), "READ_REQUEST 100 A va 0 len 256");
  peer.ReadResponse(kFirst, 100, 256);  // it was reordered,
  peer.ReadResponse(kOnly, 100, 256);   // and comes twice
  peer.ReadResponse(kMiddle, 103, 256);
  EXPECT_EQ(peer.Transmit(), "");
  EXPECT_EQ(peer.NextTimer(), 16 * kMicrosecond);
  peer.ReadResponse(kMiddle, 102, 256);
  EXPECT_EQ(peer.Transmit(), "");
  peer.ReadResponse(kMiddle, 105, 256);
  peer.At(15 * kMicrosecond);
  EXPECT_EQ(peer.Transmit(), "");
  peer.At(16 * kMicrosecond);
  EXPECT_EQ(peer.Transmit(), "READ_REQUEST 104 A va 1024 len 256");
}

// After a silence one request covers all from the first missing packet on; it
// is not split around what has arrived.
TEST(RequesterReadTest, ProbeAsksForAllFromTheFirstMissing) {
  RequesterPeer peer;
  peer.Connect();
  peer.Read(1, 1280);
  peer.Read(2, 256);
  peer.Transmit();
  peer.ReadResponse(kMiddle, 102, 256);
  EXPECT_EQ(peer.Transmit(), "READ_REQUEST 100 A va 0 len 512");
  peer.At(4 * kMillisecond);
  EXPECT_EQ(
      peer.Transmit(),
      "READ_REQUEST 100 A va 0 len 1280; READ_REQUEST 105 A va 0 len 256");
  peer.ReadResponse(kMiddle, 101, 256);
  EXPECT_EQ(peer.Transmit(), "READ_REQUEST 100 A va 0 len 256");
  peer.ReadResponse(kOnly, 100, 256);
  peer.ReadResponse(kMiddle, 103, 256);
  peer.ReadResponse(kLast, 104, 256);
  peer.ReadResponse(kOnly, 105, 256);
  EXPECT_EQ(peer.Completions(), "1 ok 1280; 2 ok 256");
  EXPECT_EQ(peer.in_flight(), 0u);
}

// Bad responses ahead of their turn are dropped, and do not fail the READ.
TEST(RequesterReadTest, BadResponsesAheadOfTheirTurnAreDropped) {
  RequesterPeer peer;
  peer.Connect();
  peer.Read(1, 768);
  peer.FetchAdd(2, 1);
  peer.Transmit();
  peer.ReadResponse(kMiddle, 101, 252);
  peer.ReadResponse(kFirst, 101, 256);
  peer.ReadResponse(kOnly, 103, 8);
  peer.AtomicAck(102, 1);
  EXPECT_EQ(peer.qp->counters().dropped_response, 4u);
  EXPECT_EQ(peer.Completions(), "");
  EXPECT_EQ(peer.qp->state(), QpState::kRts);
  EXPECT_EQ(peer.Bytes(256, 1)[0], 256 % 251);
}

// Two responses with one PSN and different contents: one is forged.
TEST(RequesterReadTest, WhatCameAheadIsNotTrustedIfACopyDiffers) {
  RequesterPeer peer;
  peer.Connect();
  peer.Read(1, 768);
  peer.Transmit();
  peer.ReadResponse(kMiddle, 101, 256, 66);
  EXPECT_EQ(peer.Transmit(), "READ_REQUEST 100 A va 0 len 256");
  peer.ReadResponse(kMiddle, 101, 256, 2);
  EXPECT_EQ(peer.qp->counters().dropped_conflict, 1u);
  peer.ReadResponse(kLast, 102, 256, 3);
  peer.ReadResponse(kLast, 102, 256, 3);  // the same
  EXPECT_EQ(peer.qp->counters().dropped_conflict, 1u);
  peer.ReadResponse(kFirst, 100, 256, 1);
  EXPECT_EQ(peer.Completions(), "");
  EXPECT_EQ(peer.Transmit(), "READ_REQUEST 101 A va 256 len 256");
  peer.ReadResponse(kOnly, 101, 256, 2);
  EXPECT_EQ(peer.Completions(), "1 ok 768");
  EXPECT_EQ(peer.Bytes(256, 256), Counting(2, 256));
}

// The responses to one READ, with every other packet lost: gaps that cannot be
// noted are requested later, and all of it arrives.
TEST(RequesterReadTest, MoreGapsThanAreNoted) {
  RequesterPeer peer;
  peer.attributes.max_rd_atomic = 1;
  peer.Connect();
  peer.Read(1, 256 * 256);
  peer.Transmit();
  for (uint32_t i = 1; i < 255; i += 2) {
    peer.ReadResponse(kMiddle, 100 + i, 256);
  }
  for (int requests = 0; peer.Completions().empty(); ++requests) {
    ASSERT_LT(requests, 200);
    if (peer.Transmit().empty()) {
      peer.At(peer.NextTimer());
      peer.Transmit();
    }
    ASSERT_FALSE(peer.sent.empty());
    const uint32_t first = peer.sent[0].psn;
    const uint32_t packets = peer.sent[0].length / 256;
    for (uint32_t i = 0; i < packets; ++i) {
      peer.ReadResponse(packets == 1       ? kOnly
                        : i == 0           ? kFirst
                        : i + 1 == packets ? kLast
                                           : kMiddle,
                        first + i, 256);
    }
  }
  EXPECT_EQ(peer.in_flight(), 0u);
}

TEST(RequesterReadTest, AckBeyondAReadMeansThatItsResponseWasLost) {
  RequesterPeer peer;
  peer.Connect();
  peer.Send(1, 1);
  peer.Read(2, 300);
  peer.Send(3, 1);
  peer.FetchAdd(4, 1);
  peer.Send(5, 1);
  peer.Transmit();
  peer.Ack(103);
  EXPECT_EQ(peer.Completions(), "1 ok");
  // Packets that are not known to be missing are not retransmitted.
  EXPECT_EQ(peer.Transmit(), "READ_REQUEST 101 A va 0 len 300");
  peer.ReadResponse(kFirst, 101, 256);
  peer.ReadResponse(kLast, 102, 44);
  EXPECT_EQ(peer.Completions(), "2 ok 300; 3 ok");
  peer.AtomicAck(104, 1);
  peer.Ack(105);
  EXPECT_EQ(peer.Completions(), "4 ok 8; 5 ok");
  EXPECT_EQ(peer.in_flight(), 0u);
}

TEST(RequesterReadTest, LaterAtomicAnswerMeansThatTheFirstWasLost) {
  RequesterPeer peer;
  peer.Connect();
  peer.FetchAdd(1, 1);
  peer.FetchAdd(2, 1);
  peer.Transmit();
  peer.AtomicAck(101, 6);
  EXPECT_EQ(peer.Completions(), "");
  EXPECT_EQ(peer.Transmit(), "FETCH_ADD 100 A va 0 add 1");
  peer.AtomicAck(100, 5);
  EXPECT_EQ(peer.Completions(), "1 ok 8; 2 ok 8");
}

TEST(RequesterReadTest, WindowCountsRequestedBytes) {
  RequesterPeer peer;
  peer.Connect();
  peer.Read(1, 64 * 1024);  // the whole window, at 256 + 256 bytes
  peer.Send(2, 1);
  peer.Transmit();
  EXPECT_EQ(peer.sent.size(), 4u);
  EXPECT_EQ(peer.in_flight(), Path::kInitialWindow);
  peer.ReadResponse(kFirst, 100, 256);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 356 A [1]");
}

struct BadAnswer {
  const char* name;
  Operation operation;
  size_t payload;
};

class RequesterBadResponse : public ::testing::TestWithParam<BadAnswer> {};

// The READ is of 600 bytes in three packets.
TEST_P(RequesterBadResponse, EndsTheRead) {
  RequesterPeer peer;
  peer.Connect();
  peer.Read(1, 600);
  peer.Send(2, 1);
  peer.Transmit();
  if (GetParam().operation == Operation::kAtomicAcknowledge) {
    peer.AtomicAck(100, 1);
  } else {
    peer.ReadResponse(GetParam().operation, 100, GetParam().payload);
  }
  EXPECT_EQ(peer.Completions(), "1 status 7; 2 status 5");
  EXPECT_EQ(peer.qp->state(), QpState::kErr);
  EXPECT_EQ(peer.in_flight(), 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Answers, RequesterBadResponse,
    ::testing::Values(
        BadAnswer{"TooShort", kFirst, 252}, BadAnswer{"TooLong", kFirst, 260},
        BadAnswer{"Empty", kFirst, 0}, BadAnswer{"Only", kOnly, 256},
        BadAnswer{"Middle", kMiddle, 256}, BadAnswer{"Last", kLast, 256},
        BadAnswer{"Atomic", Operation::kAtomicAcknowledge, 0}),
    [](const auto& info) { return info.param.name; });

// Otherwise an attacker who guesses a PSN in flight could end the connection.
TEST(RequesterReadTest, ReadResponseToASendIsDropped) {
  RequesterPeer peer;
  peer.Connect();
  peer.Send(1, 1);
  peer.Transmit();
  peer.ReadResponse(kOnly, 100, 1);
  peer.AtomicAck(100, 1);
  EXPECT_EQ(peer.Completions(), "");
  EXPECT_EQ(peer.qp->counters().dropped_response, 2u);
  peer.Ack(100);
  EXPECT_EQ(peer.Completions(), "1 ok");
}

TEST(RequesterReadTest, ReadResponseToAnAtomicIsBad) {
  RequesterPeer peer;
  peer.Connect();
  peer.FetchAdd(1, 1);
  peer.Transmit();
  peer.ReadResponse(kOnly, 100, 8);
  EXPECT_EQ(peer.Completions(), "1 status 7");
}

TEST(RequesterReadTest, TargetIsCheckedBeforeAsking) {
  RequesterPeer peer;
  FakeMemory::Region& read_only = peer.memory.Add(0x900000, 64, peer.kPd, 0);
  peer.Connect();
  peer.Post({.wr_id = 1, .opcode = SendOpcode::kRdmaRead},
            {{read_only.va, 8, read_only.lkey}});
  EXPECT_EQ(peer.Transmit(), "");
  EXPECT_EQ(peer.Completions(), "1 status 4");
}

// The whole target is checked at first, though the READ takes several requests.
TEST(RequesterReadTest, TargetOfALongReadIsCheckedBeforeAsking) {
  RequesterPeer peer;
  peer.Connect();
  peer.Post({.wr_id = 1, .opcode = SendOpcode::kRdmaRead},
            {peer.Local(0, 512 * 1024), {peer.kVa, 8, 0xbad}});
  EXPECT_EQ(peer.Transmit(), "");
  EXPECT_EQ(peer.Completions(), "1 status 4");
}

TEST(RequesterReadTest, TargetOfAnAtomicIsCheckedBeforeAsking) {
  RequesterPeer peer;
  FakeMemory::Region& read_only = peer.memory.Add(0x900000, 64, peer.kPd, 0);
  peer.Connect();
  peer.Post({.wr_id = 1, .opcode = SendOpcode::kFetchAdd},
            {{read_only.va, 8, read_only.lkey}});
  EXPECT_EQ(peer.Transmit(), "");
  EXPECT_EQ(peer.Completions(), "1 status 4");
}

TEST(RequesterReadTest, TargetIsCheckedWhenPlacing) {
  RequesterPeer peer;
  peer.Connect();
  peer.Read(1, 8);
  peer.FetchAdd(2, 1);
  peer.Transmit();
  peer.local->valid = false;
  peer.ReadResponse(kOnly, 100, 8);
  EXPECT_EQ(peer.Completions(), "1 status 4; 2 status 5");
}

TEST(RequesterReadTest, FaultWhenPlacing) {
  RequesterPeer peer;
  peer.Connect();
  peer.FetchAdd(1, 1);
  peer.Transmit();
  peer.local->faulty = true;
  peer.AtomicAck(100, 8);
  EXPECT_EQ(peer.Completions(), "1 status 4");
}

// Once part of a request has been answered, the rest may be requested in
// pieces. Before that, the request is repeated as it was: otherwise later
// responses could not be told apart.
TEST(RequesterReadTest, SmallWindowAsksForPieces) {
  RequesterPeer peer;
  peer.attributes.max_rd_atomic = 1;
  peer.Connect();
  peer.Read(1, 64 * 1024);
  EXPECT_EQ(peer.Transmit(), "READ_REQUEST 100 A va 0 len 65536");
  peer.At(4 * kMillisecond);  // the first probe
  EXPECT_EQ(peer.Transmit(), "READ_REQUEST 100 A va 0 len 65536");
  peer.At(12 * kMillisecond);  // the second: the window is at its minimum
  EXPECT_EQ(peer.path().window(), Path::kMinWindow);
  EXPECT_EQ(peer.Transmit(), "READ_REQUEST 100 A va 0 len 65536");
  peer.ReadResponse(kFirst, 100, 256);
  peer.At(peer.NextTimer());
  EXPECT_EQ(peer.Transmit(), "READ_REQUEST 101 A va 256 len 8192");
  for (uint32_t i = 101; i < 133; ++i) {
    EXPECT_EQ(peer.Transmit(), "");
    peer.ReadResponse(i == 101 ? kFirst : i < 132 ? kMiddle : kLast, i, 256);
  }
  peer.Transmit();
  ASSERT_EQ(peer.sent.size(), 1u);
  EXPECT_EQ(peer.sent[0].psn, 133u);
}

}  // namespace
}  // namespace transport
