// NAKs and RNR NAKs, and the replay that follows, to the nanosecond.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "transport/rc/requester.h"
#include "transport/testing/requester_peer.h"

namespace transport {
namespace {

// The local ACK timeouts, of a peer that has not answered yet.
constexpr Time kTimeout14 = int64_t{4096} << 14;  // 67.1 ms
constexpr Time kFirstProbe = 4 * kMillisecond;    // without a round trip known

TEST(RequesterNakTest, NakGoesBack) {
  RequesterPeer peer;
  peer.Connect();
  for (int i = 1; i <= 4; ++i) peer.Send(i, 1);
  peer.Transmit();
  peer.Nak(101);
  EXPECT_EQ(peer.Completions(), "1 ok");
  EXPECT_EQ(peer.Transmit(),
            "SEND_ONLY 101 A [1]; SEND_ONLY 102 [1]; SEND_ONLY 103 A [1]");
  EXPECT_EQ(peer.qp->counters().retransmitted, 3u);
  EXPECT_EQ(peer.qp->counters().sequence_naks_received, 1u);
  peer.Ack(103);
  EXPECT_EQ(peer.Completions(), "2 ok; 3 ok; 4 ok");
  EXPECT_EQ(peer.in_flight(), 0u);
}

TEST(RequesterNakTest, RepeatedNaksOfOneRoundTripAreOne) {
  RequesterPeer peer;
  peer.Connect();
  peer.MeasureRoundTrip(kMillisecond);
  for (int i = 2; i <= 4; ++i) peer.Send(i, 1);
  peer.Transmit();
  peer.Nak(101);
  peer.Nak(101);
  EXPECT_EQ(peer.Transmit(),
            "SEND_ONLY 101 A [1]; SEND_ONLY 102 [1]; SEND_ONLY 103 A [1]");
  peer.Nak(101);
  EXPECT_EQ(peer.Transmit(), "");
  peer.At(2 * kMillisecond - 1);
  peer.Nak(101);
  EXPECT_EQ(peer.Transmit(), "");
  peer.At(2 * kMillisecond);
  peer.Nak(101);
  EXPECT_EQ(peer.Transmit(),
            "SEND_ONLY 101 A [1]; SEND_ONLY 102 [1]; SEND_ONLY 103 A [1]");
}

TEST(RequesterNakTest, ReplayIsCutIntoTheSamePackets) {
  RequesterPeer peer;
  peer.Connect();
  peer.Write(1, 1000);
  peer.Transmit();
  const std::vector<uint8_t> all = peer.payload;
  peer.Nak(102);
  EXPECT_EQ(peer.Transmit(),
            "WRITE_MIDDLE 102 A [256]; WRITE_LAST 103 A [232]");
  EXPECT_EQ(peer.payload, std::vector<uint8_t>(all.begin() + 512, all.end()));
  peer.At(kTimeout14 * 2);
  peer.Transmit();
}

TEST(RequesterNakTest, AnAckMovesTheReplayForward) {
  RequesterPeer::Options options;
  options.max_segments = 1;
  RequesterPeer peer(options);
  peer.Connect();
  for (int i = 1; i <= 6; ++i) peer.Send(i, 1);
  peer.Transmit();
  peer.Nak(100);
  EXPECT_EQ(peer.TransmitOne(), "SEND_ONLY 100 A [1]");
  peer.Ack(103);
  EXPECT_EQ(peer.Completions(), "1 ok; 2 ok; 3 ok; 4 ok");
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 104 [1]; SEND_ONLY 105 A [1]");
}

TEST(RequesterNakTest, APeerThatBuffersGetsOnlyWhatIsMissing) {
  RequesterPeer::Options options;
  options.max_segments = 1;
  RequesterPeer peer(options);
  peer.Connect();
  for (int i = 1; i <= 6; ++i) peer.Send(i, 1);
  peer.Transmit();
  peer.Nak(101);
  EXPECT_EQ(peer.TransmitOne(), "SEND_ONLY 101 A [1]");
  peer.Ack(105);  // it had buffered the others
  EXPECT_EQ(peer.Transmit(), "");
  for (int i = 7; i <= 10; ++i) peer.Send(i, 1);
  peer.Transmit();
  peer.Nak(107);
  peer.Send(11, 1);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 107 A [1]; SEND_ONLY 110 A [1]");
  peer.Ack(108);
  peer.Nak(109);  // another gap
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 109 A [1]");
  peer.Ack(110);
  peer.Completions();
  EXPECT_EQ(peer.in_flight(), 0u);
}

// Messages of one packet, numbered from 2 on, are outstanding to a peer that is
// known to buffer packets beyond a gap. Packet `n` is message n - 99.
void ConnectToOneThatBuffers(RequesterPeer* peer, int messages) {
  peer->Connect();
  peer->MeasureRoundTrip(kMillisecond);
  for (int i = 2; i <= 4; ++i) peer->Send(i, 1);
  peer->Transmit();
  peer->Nak(101);
  EXPECT_EQ(peer->TransmitOne(), "SEND_ONLY 101 A [1]");
  peer->Ack(103);
  peer->Completions();
  peer->At(kSecond);
  for (int i = 5; i < 5 + messages; ++i) peer->Send(i, 1);
  peer->Transmit();
}

// The PSNs of `sent`, the last of which asks for an ACK.
std::string RunOf(const RequesterPeer& peer) {
  for (size_t i = 0; i + 1 < peer.sent.size(); ++i) {
    EXPECT_EQ(peer.sent[i].psn + 1, peer.sent[i + 1].psn);
  }
  EXPECT_TRUE(peer.sent.back().ack_req);
  return std::to_string(peer.sent.front().psn) + " to " +
         std::to_string(peer.sent.back().psn);
}

// Packets are lost in bursts: while a gap continues beyond what has been
// retransmitted, runs get longer. Each run takes a round trip.
TEST(RequesterNakTest, ALongGapIsFilledInLongerAndLongerRuns) {
  RequesterPeer::Options options;
  options.max_segments = 1;
  RequesterPeer peer(options);
  ConnectToOneThatBuffers(&peer, 100);
  const auto nak = [&peer](uint32_t psn) {
    peer.Nak(psn);
    peer.Transmit();
    return RunOf(peer);
  };
  EXPECT_EQ(nak(110), "110 to 110");
  EXPECT_EQ(nak(111), "111 to 114");
  EXPECT_EQ(nak(115), "115 to 130");
  // At most what half the window holds: 62 packets of 256 bytes.
  EXPECT_EQ(nak(131), "131 to 192");
  // The gap ended in the middle of that run. The next gap is another one.
  EXPECT_EQ(nak(190), "190 to 190");
  EXPECT_EQ(nak(191), "191 to 194");
  // The run does not reach beyond what has been sent.
  EXPECT_EQ(nak(195), "195 to 203");
  peer.Ack(203);
  peer.Completions();
  EXPECT_EQ(peer.in_flight(), 0u);
}

// A probe is a run of one, however long the last gap's runs were.
TEST(RequesterNakTest, AProbeBeginsRunsAnew) {
  RequesterPeer::Options options;
  options.max_segments = 1;
  RequesterPeer peer(options);
  ConnectToOneThatBuffers(&peer, 100);
  for (const uint32_t psn : {110, 111, 115}) {
    peer.Nak(psn);
    peer.Transmit();
  }
  EXPECT_EQ(RunOf(peer), "115 to 130");
  peer.Ack(150);
  peer.At(peer.NextTimer());
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 203 A [1]");
  peer.Ack(203);
  peer.Completions();
  for (int i = 0; i < 100; ++i) peer.Send(200 + i, 1);
  peer.Transmit();
  peer.Nak(204);
  peer.Transmit();
  EXPECT_EQ(RunOf(peer), "204 to 207");
}

TEST(RequesterNakTest, AnAckStopsARunShort) {
  RequesterPeer::Options options;
  options.max_segments = 1;
  RequesterPeer peer(options);
  ConnectToOneThatBuffers(&peer, 30);
  peer.Nak(110);
  peer.Transmit();
  peer.Nak(111);
  EXPECT_EQ(peer.TransmitOne(), "SEND_ONLY 111 [1]");
  peer.Ack(112);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 113 [1]; SEND_ONLY 114 A [1]");
  peer.Nak(115);
  EXPECT_EQ(peer.TransmitOne(), "SEND_ONLY 115 [1]");
  peer.Ack(133);
  EXPECT_EQ(peer.Transmit(), "");
}

TEST(RequesterNakTest, ARunEndsBeforeARead) {
  RequesterPeer::Options options;
  options.max_segments = 1;
  RequesterPeer peer(options);
  ConnectToOneThatBuffers(&peer, 5);  // 104 to 108
  peer.Read(20, 256);
  peer.Send(21, 1);
  peer.Transmit();
  peer.Nak(105);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 105 A [1]");
  peer.Nak(106);
  EXPECT_EQ(peer.Transmit(),
            "SEND_ONLY 106 [1]; SEND_ONLY 107 [1]; SEND_ONLY 108 A [1]");
}

// Several gaps of one flight are one loss.
TEST(RequesterNakTest, TheWindowShrinksOncePerFlight) {
  RequesterPeer::Options options;
  options.max_segments = 1;
  RequesterPeer peer(options);
  ConnectToOneThatBuffers(&peer, 100);
  const uint64_t before = peer.path().window();
  Time time = kSecond;
  for (const uint32_t psn : {110, 120, 130, 140, 150}) {
    time += 10 * kMillisecond;
    peer.now = RequesterPeer::kStart + time;
    peer.Nak(psn);
    EXPECT_EQ(peer.Transmit(), "SEND_ONLY " + std::to_string(psn) + " A [1]");
  }
  const uint64_t after = peer.path().window();
  EXPECT_GE(after, before / 10 * 7);
  EXPECT_LT(after, before);
  peer.Ack(203);
  peer.Completions();
  // The next flight is another one.
  for (int i = 0; i < 20; ++i) peer.Send(200 + i, 1);
  peer.Transmit();
  peer.Nak(210);
  EXPECT_LT(peer.path().window(), after);
}

TEST(RequesterNakTest, AReplayOfEverythingProvesNoBuffering) {
  RequesterPeer peer;
  peer.Connect();
  for (int i = 1; i <= 4; ++i) peer.Send(i, 1);
  peer.Transmit();
  peer.Nak(100);
  peer.Transmit();
  peer.Ack(103);
  peer.At(kSecond);
  for (int i = 5; i <= 7; ++i) peer.Send(i, 1);
  peer.Transmit();
  peer.Nak(104);
  EXPECT_EQ(peer.Transmit(),
            "SEND_ONLY 104 A [1]; SEND_ONLY 105 [1]; SEND_ONLY 106 A [1]");
}

// The peer accepts the retransmitted packet and is then silent: it has dropped
// the packets beyond.
TEST(RequesterNakTest, APeerThatStopsBufferingIsNoticedByTheProbe) {
  RequesterPeer::Options options;
  options.max_segments = 1;
  RequesterPeer peer(options);
  peer.Connect();
  for (int i = 1; i <= 3; ++i) peer.Send(i, 1);
  peer.Transmit();
  peer.Nak(100);
  peer.TransmitOne();
  peer.Ack(102);
  for (int i = 4; i <= 7; ++i) peer.Send(i, 1);
  peer.Transmit();
  peer.Nak(103);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 103 A [1]");  // it has dropped
  peer.Ack(103);
  EXPECT_EQ(peer.Transmit(), "");
  peer.At(kFirstProbe);
  EXPECT_EQ(peer.Transmit(),
            "SEND_ONLY 104 A [1]; SEND_ONLY 105 [1]; SEND_ONLY 106 A [1]");
  peer.Ack(106);
  peer.Completions();
  EXPECT_EQ(peer.in_flight(), 0u);
}

// Nothing was beyond the gap: packets sent since are a tail like any other.
TEST(RequesterNakTest, AGapAtTheEndProvesNothing) {
  RequesterPeer peer;
  peer.Connect();
  for (int i = 1; i <= 40; ++i) peer.Send(i, 1);
  peer.Transmit();
  peer.Nak(100);
  peer.Transmit();
  peer.Ack(139);  // it buffers
  peer.At(kSecond);
  peer.Send(41, 1);
  peer.Transmit();
  peer.Nak(140);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 140 A [1]");
  peer.Ack(140);
  for (int i = 42; i <= 44; ++i) peer.Send(i, 1);
  peer.Transmit();
  peer.At(peer.NextTimer());
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 143 A [1]");
  peer.Nak(141);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 141 A [1]");
}

// A go-back-N peer accepts late packets that were not retransmitted, as if it
// had buffered them. That counts as proof until it is disproved.
TEST(RequesterNakTest, LatePacketsLookBufferedOnce) {
  RequesterPeer::Options options;
  options.max_segments = 1;
  RequesterPeer peer(options);
  peer.Connect();
  int id = 0;
  const auto send = [&](int count) {
    for (int i = 0; i < count; ++i) peer.Send(++id, 1);
    peer.Transmit();
  };
  send(10);
  peer.Nak(103);  // 106 came first
  peer.TransmitOne();
  peer.Ack(105);
  EXPECT_EQ(peer.Transmit(),
            "SEND_ONLY 106 [1]; SEND_ONLY 107 [1]; SEND_ONLY 108 [1]; "
            "SEND_ONLY 109 A [1]");
  peer.Ack(109);
  peer.At(kSecond);
  send(4);
  peer.Nak(110);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 110 A [1]");
  peer.Ack(110);
  peer.At(peer.NextTimer());
  EXPECT_EQ(peer.Transmit(),
            "SEND_ONLY 111 A [1]; SEND_ONLY 112 [1]; SEND_ONLY 113 A [1]");
  peer.Ack(113);
  // The same once more.
  peer.At(2 * kSecond);
  send(10);
  peer.Nak(117);
  peer.TransmitOne();
  peer.Ack(119);
  peer.Transmit();
  peer.Ack(123);
  peer.At(3 * kSecond);
  send(4);
  peer.Nak(124);
  EXPECT_EQ(peer.Transmit(),
            "SEND_ONLY 124 A [1]; SEND_ONLY 125 [1]; SEND_ONLY 126 [1]; "
            "SEND_ONLY 127 A [1]");
}

struct FatalNak {
  wire::NakCode code;
  int status;
};
class RequesterFatalNak : public ::testing::TestWithParam<FatalNak> {};

TEST_P(RequesterFatalNak, EndsTheConnection) {
  RequesterPeer peer;
  peer.Connect();
  peer.Send(1, 1, 0);
  peer.Send(2, 1);
  peer.Send(3, 600, 0);
  peer.Send(4, 1);
  peer.Transmit();
  peer.Send(5, 1, 0);
  peer.Nak(103, GetParam().code);
  EXPECT_EQ(peer.Completions(), "2 ok; 3 status " +
                                    std::to_string(GetParam().status) +
                                    "; 4 status 5; 5 status 5");
  EXPECT_EQ(peer.qp->state(), QpState::kErr);
  EXPECT_EQ(peer.Transmit(), "");
  EXPECT_EQ(peer.in_flight(), 0u);
  EXPECT_EQ(peer.NextTimer(), kNever);
}

INSTANTIATE_TEST_SUITE_P(
    Codes, RequesterFatalNak,
    ::testing::Values(FatalNak{wire::NakCode::kInvalidRequest, 9},
                      FatalNak{wire::NakCode::kRemoteAccess, 10},
                      FatalNak{wire::NakCode::kRemoteOperational, 11}));

TEST(RequesterNakTest, ReservedAndGhostNaksAreNothing) {
  RequesterPeer peer;
  peer.Connect();
  peer.Send(1, 1);
  peer.Transmit();
  EXPECT_EQ(peer.Acknowledge(wire::Operation::kAcknowledge, 100,
                             wire::MakeNakSyndrome(wire::NakCode{17})),
            Disposition::kBadSyndrome);
  peer.Nak(101, wire::NakCode::kRemoteAccess);  // never sent
  peer.Nak(99, wire::NakCode::kRemoteAccess);   // before the first
  EXPECT_EQ(peer.Completions(), "");
  EXPECT_EQ(peer.Transmit(), "");
  EXPECT_EQ(peer.qp->state(), QpState::kRts);
}

// The fatal NAK arrived, the response to the READ before it did not: the READ
// is requested once more, and then given up.
TEST(RequesterNakTest, FatalNakBeyondAReadThatWasNotAnswered) {
  RequesterPeer peer;
  peer.Connect();
  peer.Read(1, 1);
  peer.Send(2, 1);
  peer.Transmit();
  peer.Nak(101, wire::NakCode::kRemoteAccess);
  EXPECT_EQ(peer.Completions(), "");
  EXPECT_EQ(peer.Transmit(),
            "READ_REQUEST 100 A va 0 len 1; SEND_ONLY 101 A [1]");
  peer.At(kFirstProbe);
  EXPECT_EQ(peer.Completions(), "1 status 10; 2 status 5");
}

TEST(RequesterNakTest, FatalNakThatOvertookTheAnswerToARead) {
  RequesterPeer peer;
  peer.Connect();
  peer.Read(1, 1);
  peer.Send(2, 1);
  peer.Transmit();
  peer.Nak(101, wire::NakCode::kRemoteAccess);
  peer.ReadResponse(wire::Operation::kReadResponseOnly, 100, 1);
  EXPECT_EQ(peer.Completions(), "1 ok 1; 2 status 10");
}

TEST(RequesterNakTest, RnrNakWaitsItsTime) {
  RequesterPeer peer;
  peer.Connect();
  for (int i = 1; i <= 3; ++i) peer.Send(i, 1);
  peer.Transmit();
  peer.RnrNak(101, 12);  // 0.64 ms
  EXPECT_EQ(peer.Completions(), "1 ok");
  EXPECT_EQ(peer.in_flight(), 0u);
  EXPECT_EQ(peer.Transmit(), "");
  EXPECT_EQ(peer.NextTimer(), 640 * kMicrosecond);
  peer.At(300 * kMicrosecond);
  peer.RnrNak(101, 12);  // a copy: does not count
  peer.Nak(101);
  EXPECT_EQ(peer.NextTimer(), 640 * kMicrosecond);
  peer.At(640 * kMicrosecond - 1);
  EXPECT_EQ(peer.Transmit(), "");
  peer.At(640 * kMicrosecond);
  // One packet is tried first; the others follow.
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 101 A [1]");
  peer.Ack(101);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 102 A [1]");
  peer.Ack(102);
  EXPECT_EQ(peer.Completions(), "2 ok; 3 ok");
  EXPECT_EQ(peer.qp->counters().rnr_naks_received, 2u);
}

// Code 0 is the longest time.
TEST(RequesterNakTest, RnrTimerCodeZero) {
  RequesterPeer peer;
  peer.Connect();
  peer.Send(1, 1);
  peer.Transmit();
  peer.RnrNak(100, 0);
  EXPECT_EQ(peer.NextTimer(), 655360 * kMicrosecond);
}

TEST(RequesterNakTest, RnrRetriesAreCounted) {
  RequesterPeer peer;
  peer.attributes.rnr_retry = 2;
  peer.Connect();
  peer.Send(1, 1, 0);
  peer.Send(2, 1);
  Time at = 0;
  for (int i = 0; i < 2; ++i) {
    EXPECT_NE(peer.Transmit(), "");
    peer.RnrNak(100, 1);
    at += 10 * kMicrosecond;
    peer.At(at);
  }
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 100 A [1]");
  peer.RnrNak(100, 1);
  EXPECT_EQ(peer.Completions(), "1 status 13; 2 status 5");
}

TEST(RequesterNakTest, RnrRetryZeroFailsAtOnce) {
  RequesterPeer peer;
  peer.attributes.rnr_retry = 0;
  peer.Connect();
  peer.Send(1, 1);
  peer.Transmit();
  peer.RnrNak(100, 1);
  EXPECT_EQ(peer.Completions(), "1 status 13");
}

TEST(RequesterNakTest, RnrRetrySevenIsForEver) {
  RequesterPeer peer;
  peer.Connect();
  peer.Send(1, 1);
  for (int i = 1; i <= 300; ++i) {
    EXPECT_EQ(peer.Transmit(), "SEND_ONLY 100 A [1]");
    peer.RnrNak(100, 31);
    peer.At(i * (491520 * kMicrosecond));
  }
  EXPECT_EQ(peer.qp->state(), QpState::kRts);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 100 A [1]");
  peer.Ack(100);
  EXPECT_EQ(peer.Completions(), "1 ok");
}

TEST(RequesterNakTest, ProgressForgivesRnrRetries) {
  RequesterPeer peer;
  peer.attributes.rnr_retry = 1;
  peer.Connect();
  Time at = 0;
  for (uint32_t i = 0; i < 5; ++i) {
    peer.Send(i, 1);
    peer.Transmit();
    peer.RnrNak(100 + i, 1);
    at += 10 * kMicrosecond;
    peer.At(at);
    peer.Transmit();
    peer.Ack(100 + i);
    EXPECT_EQ(peer.Completions(), std::to_string(i) + " ok");
  }
}

}  // namespace
}  // namespace transport
