// NAKs, RNR NAKs, replay, probes and timeouts, to the nanosecond.
#include <vector>

#include "gtest/gtest.h"
#include "transport/rc/requester.h"
#include "transport/testing/requester_peer.h"

namespace transport {
namespace {

// The local ACK timeouts, of a peer that has not answered yet.
constexpr Time kTimeout14 = int64_t{4096} << 14;  // 67.1 ms
constexpr Time kTimeout8 = int64_t{4096} << 8;    // 1.05 ms
// NAKs so far apart are not of one flight, nor does a probe come with one.
constexpr Time kApart = 11 * kMillisecond;
constexpr Time kFirstProbe = 4 * kMillisecond;  // without a round trip known

// Up to `time` after the start, sending what timers ask for.
void RunTo(RequesterPeer* peer, Time time) {
  while (peer->NextTimer() < time) {
    peer->At(peer->NextTimer());
    peer->Transmit();
  }
  peer->At(time);
}

// One round trip of `rtt`, ending at `rtt` after the start.
void Measure(RequesterPeer* peer, Time rtt) {
  peer->Send(1, 1);
  EXPECT_EQ(peer->Transmit(), "SEND_ONLY 100 A [1]");
  peer->At(rtt);
  peer->Ack(100);
  EXPECT_EQ(peer->Completions(), "1 ok");
  EXPECT_EQ(peer->path().smoothed_rtt(), rtt);
}

TEST(RequesterLossTest, NakGoesBack) {
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

TEST(RequesterLossTest, RepeatedNaksOfOneRoundTripAreOne) {
  RequesterPeer peer;
  peer.Connect();
  Measure(&peer, kMillisecond);
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

TEST(RequesterLossTest, ReplayIsCutIntoTheSamePackets) {
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

TEST(RequesterLossTest, AnAckMovesTheReplayForward) {
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

TEST(RequesterLossTest, APeerThatKeepsGetsOnlyWhatIsMissing) {
  RequesterPeer::Options options;
  options.max_segments = 1;
  RequesterPeer peer(options);
  peer.Connect();
  for (int i = 1; i <= 6; ++i) peer.Send(i, 1);
  peer.Transmit();
  peer.Nak(101);
  EXPECT_EQ(peer.TransmitOne(), "SEND_ONLY 101 A [1]");
  peer.Ack(105);  // it had kept the others
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

// A peer with one message of one packet for each number from 2 on outstanding,
// and seen to keep what comes beyond a gap. Packet `n` is message n - 99.
void ConnectToOneThatKeeps(RequesterPeer* peer, int messages) {
  peer->Connect();
  Measure(peer, kMillisecond);
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

// Packets get lost in bursts: a gap that goes on behind what has filled it is
// filled in ever longer runs, each of which takes a round trip.
TEST(RequesterLossTest, ALongGapIsFilledInLongerAndLongerRuns) {
  RequesterPeer::Options options;
  options.max_segments = 1;
  RequesterPeer peer(options);
  ConnectToOneThatKeeps(&peer, 100);
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
  // It ended in the middle of that one. The next gap is another one.
  EXPECT_EQ(nak(190), "190 to 190");
  EXPECT_EQ(nak(191), "191 to 194");
  // Not beyond what has been sent.
  EXPECT_EQ(nak(195), "195 to 203");
  peer.Ack(203);
  peer.Completions();
  EXPECT_EQ(peer.in_flight(), 0u);
}

// What a probe has sent is a run of one, however long the last gap's were.
TEST(RequesterLossTest, AProbeBeginsRunsAnew) {
  RequesterPeer::Options options;
  options.max_segments = 1;
  RequesterPeer peer(options);
  ConnectToOneThatKeeps(&peer, 100);
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

TEST(RequesterLossTest, AnAckStopsARunShort) {
  RequesterPeer::Options options;
  options.max_segments = 1;
  RequesterPeer peer(options);
  ConnectToOneThatKeeps(&peer, 30);
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

TEST(RequesterLossTest, ARunEndsBeforeARead) {
  RequesterPeer::Options options;
  options.max_segments = 1;
  RequesterPeer peer(options);
  ConnectToOneThatKeeps(&peer, 5);  // 104 to 108
  peer.Read(20, 256);
  peer.Send(21, 1);
  peer.Transmit();
  peer.Nak(105);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 105 A [1]");
  peer.Nak(106);
  EXPECT_EQ(peer.Transmit(),
            "SEND_ONLY 106 [1]; SEND_ONLY 107 [1]; SEND_ONLY 108 A [1]");
}

// What was lost of one flight is one loss, though it left several gaps.
TEST(RequesterLossTest, TheWindowShrinksOncePerFlight) {
  RequesterPeer::Options options;
  options.max_segments = 1;
  RequesterPeer peer(options);
  ConnectToOneThatKeeps(&peer, 100);
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

TEST(RequesterLossTest, APeerThatGotEverythingAgainIsNotSeenToKeep) {
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

TEST(RequesterLossTest, APeerThatCeasesToKeepIsNoticedByTheSecondProbe) {
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
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 103 A [1]");  // kept nothing
  peer.Ack(103);
  EXPECT_EQ(peer.Transmit(), "");
  peer.At(kFirstProbe);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 106 A [1]");
  peer.Nak(104);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 104 A [1]");
  peer.At(3 * kFirstProbe);
  EXPECT_EQ(peer.Transmit(),
            "SEND_ONLY 104 A [1]; SEND_ONLY 105 [1]; SEND_ONLY 106 A [1]");
  peer.Ack(106);
  peer.Completions();
  EXPECT_EQ(peer.in_flight(), 0u);
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

TEST(RequesterLossTest, ReservedAndGhostNaksAreNothing) {
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

// The peer's last word came, the answer to the READ before it did not: it is
// asked for once more, and then given up.
TEST(RequesterLossTest, FatalNakBeyondAReadThatWasNotAnswered) {
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

TEST(RequesterLossTest, FatalNakThatOvertookTheAnswerToARead) {
  RequesterPeer peer;
  peer.Connect();
  peer.Read(1, 1);
  peer.Send(2, 1);
  peer.Transmit();
  peer.Nak(101, wire::NakCode::kRemoteAccess);
  peer.ReadResponse(wire::Operation::kReadResponseOnly, 100, 1);
  EXPECT_EQ(peer.Completions(), "1 ok 1; 2 status 10");
}

TEST(RequesterLossTest, RnrNakWaitsItsTime) {
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
  peer.RnrNak(101, 12);  // a copy: counts for nothing
  peer.Nak(101);
  EXPECT_EQ(peer.NextTimer(), 640 * kMicrosecond);
  peer.At(640 * kMicrosecond - 1);
  EXPECT_EQ(peer.Transmit(), "");
  peer.At(640 * kMicrosecond);
  // One packet tries, the rest follows.
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 101 A [1]");
  peer.Ack(101);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 102 A [1]");
  peer.Ack(102);
  EXPECT_EQ(peer.Completions(), "2 ok; 3 ok");
  EXPECT_EQ(peer.qp->counters().rnr_naks_received, 2u);
}

// Code 0 is the longest time of all.
TEST(RequesterLossTest, RnrTimerCodeZero) {
  RequesterPeer peer;
  peer.Connect();
  peer.Send(1, 1);
  peer.Transmit();
  peer.RnrNak(100, 0);
  EXPECT_EQ(peer.NextTimer(), 655360 * kMicrosecond);
}

TEST(RequesterLossTest, RnrRetriesAreCounted) {
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

TEST(RequesterLossTest, RnrRetryZeroFailsAtOnce) {
  RequesterPeer peer;
  peer.attributes.rnr_retry = 0;
  peer.Connect();
  peer.Send(1, 1);
  peer.Transmit();
  peer.RnrNak(100, 1);
  EXPECT_EQ(peer.Completions(), "1 status 13");
}

TEST(RequesterLossTest, RnrRetrySevenIsForEver) {
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

TEST(RequesterLossTest, ProgressForgivesRnrRetries) {
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

// ibv_modify_qp(3): retry_cnt resends, an error at the timeout after them.
// Probes in between cost none.
TEST(RequesterLossTest, DeadPeer) {
  for (uint8_t retry_cnt : {0, 1, 7}) {
    RequesterPeer peer;
    peer.attributes.retry_cnt = retry_cnt;
    peer.Connect();
    peer.Send(1, 1, 0);
    peer.Send(2, 1);
    peer.Transmit();
    while (peer.qp->state() == QpState::kRts) {
      ASSERT_NE(peer.NextTimer(), kNever);
      ASSERT_LE(peer.NextTimer(), kTimeout14 * (retry_cnt + 1));
      peer.At(peer.NextTimer());
      peer.Transmit();
    }
    EXPECT_EQ(peer.now - peer.kStart, kTimeout14 * (retry_cnt + 1));
    EXPECT_EQ(peer.qp->counters().timeouts, retry_cnt + 1u);
    // 4, 12, 28 and 60 ms after the beginning, and 64 ms after the first
    // timeout.
    EXPECT_EQ(peer.qp->counters().probes, retry_cnt == 0 ? 4u : 5u);
    EXPECT_EQ(peer.Completions(), "1 status 12; 2 status 5");
    EXPECT_EQ(peer.in_flight(), 0u);
    EXPECT_EQ(peer.NextTimer(), kNever);
  }
}

// A peer that has answered before, whatever it is that is lost: twice the time,
// which the specification allows.
TEST(RequesterLossTest, PeerThatDies) {
  RequesterPeer peer;
  peer.Connect();
  peer.Send(1, 1);
  peer.Transmit();
  peer.Ack(100);
  EXPECT_EQ(peer.Completions(), "1 ok");
  peer.Send(2, 1);
  peer.Transmit();
  while (peer.qp->state() == QpState::kRts) {
    ASSERT_NE(peer.NextTimer(), kNever);
    peer.At(peer.NextTimer());
    peer.Transmit();
  }
  EXPECT_EQ(peer.now - peer.kStart, 2 * kTimeout14 * 8);
  EXPECT_EQ(peer.Completions(), "2 status 12");
}

TEST(RequesterLossTest, TimeoutReplaysEverything) {
  RequesterPeer peer;
  peer.attributes.timeout = 8;  // sooner than a probe
  peer.Connect();
  peer.Send(1, 600);
  peer.Send(2, 1);
  peer.Transmit();
  EXPECT_EQ(peer.NextTimer(), kTimeout8);
  peer.At(kTimeout8);
  EXPECT_EQ(peer.path().window(), Path::kLeastWindow);
  EXPECT_EQ(peer.Transmit(),
            "SEND_FIRST 100 A [256]; SEND_MIDDLE 101 [256]; SEND_LAST 102 A "
            "[88]; SEND_ONLY 103 A [1]");
  peer.Ack(103);
  EXPECT_EQ(peer.Completions(), "1 ok; 2 ok");
}

TEST(RequesterLossTest, ProgressForgivesRetries) {
  RequesterPeer peer;
  peer.attributes.retry_cnt = 1;
  peer.attributes.timeout = 8;
  peer.Connect();
  for (int i = 0; i < 10; ++i) peer.Send(i, 1);
  peer.Transmit();
  for (int i = 0; i < 9; ++i) {
    peer.At((2 * i + 1) * kTimeout8);
    peer.Transmit();
    peer.Ack(100 + i);
    EXPECT_EQ(peer.Completions(), std::to_string(i) + " ok");
  }
  peer.At(19 * kTimeout8);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 109 A [1]");
  peer.At(21 * kTimeout8);
  EXPECT_EQ(peer.Completions(), "9 status 12");
}

TEST(RequesterLossTest, TimeoutZeroProbesForEver) {
  RequesterPeer peer;
  peer.attributes.timeout = 0;
  peer.Connect();
  peer.Send(1, 1);
  peer.Transmit();
  while (peer.now < peer.kStart + 3600 * kSecond) {
    ASSERT_NE(peer.NextTimer(), kNever);
    peer.At(peer.NextTimer());
    EXPECT_EQ(peer.Transmit(), "SEND_ONLY 100 A [1]");
  }
  EXPECT_EQ(peer.qp->state(), QpState::kRts);
  EXPECT_LT(peer.qp->counters().probes, 3700u);  // one a second
  EXPECT_GT(peer.qp->counters().probes, 3500u);
  peer.Ack(100);
  EXPECT_EQ(peer.Completions(), "1 ok");
}

TEST(RequesterLossTest, ProbesTheTailThenReplays) {
  RequesterPeer peer;
  peer.Connect();
  Measure(&peer, 100 * kMicrosecond);
  for (int i = 2; i <= 4; ++i) peer.Send(i, 1);
  peer.Transmit();
  const Time begin = 100 * kMicrosecond;
  // Never sooner than a millisecond.
  EXPECT_EQ(peer.NextTimer(), begin + kMillisecond);
  peer.At(begin + kMillisecond);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 103 A [1]");
  EXPECT_EQ(peer.path().window(), Path::kInitialWindow);
  peer.At(begin + 3 * kMillisecond);
  EXPECT_EQ(peer.path().window(), Path::kLeastWindow);
  EXPECT_EQ(peer.Transmit(),
            "SEND_ONLY 101 A [1]; SEND_ONLY 102 [1]; SEND_ONLY 103 A [1]");
  EXPECT_EQ(peer.NextTimer(), begin + 7 * kMillisecond);
  EXPECT_EQ(peer.qp->counters().probes, 2u);
  EXPECT_EQ(peer.qp->counters().timeouts, 0u);
  peer.Ack(103);
  EXPECT_EQ(peer.Completions(), "2 ok; 3 ok; 4 ok");
  // A resend measures no round trip.
  EXPECT_EQ(peer.path().smoothed_rtt(), 100 * kMicrosecond);
}

// The peer was not scheduled for a while: nothing was lost.
TEST(RequesterLossTest, AcksOfWhatWasNotSentAgainRestoreTheWindow) {
  RequesterPeer peer;
  peer.Connect();
  peer.Write(1, 100 * 256);
  peer.Transmit();
  EXPECT_EQ(peer.sent.size(), 100u);
  peer.At(3 * kFirstProbe);
  peer.Transmit();
  EXPECT_LT(peer.sent.size(), 40u);  // as many as the least window takes
  EXPECT_EQ(peer.path().window(), Path::kLeastWindow);
  peer.Ack(165);
  EXPECT_GE(peer.path().window(), Path::kInitialWindow);
}

TEST(RequesterLossTest, AcksOfWhatWasSentAgainDoNot) {
  RequesterPeer peer;
  peer.Connect();
  peer.Write(1, 100 * 256);
  peer.Transmit();
  peer.At(3 * kFirstProbe);
  peer.Transmit();
  peer.Ack(110);
  EXPECT_LT(peer.path().window(), Path::kInitialWindow);
  peer.Ack(199);
  EXPECT_LT(peer.path().window(), Path::kInitialWindow);
}

// The gap has been reported and is silent until it fills.
TEST(RequesterLossTest, ProbesAKnownGapItself) {
  RequesterPeer peer;
  peer.Connect();
  for (int i = 1; i <= 3; ++i) peer.Send(i, 1);
  peer.Transmit();
  peer.Nak(100);
  peer.Transmit();
  peer.At(kFirstProbe);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 100 A [1]");
}

// Each answer comes after the first probe and says nothing about the round
// trip. Without patience, all that is outstanding would be sent twice for ever.
TEST(RequesterLossTest, ASlowPeerIsNotProbedForEver) {
  RequesterPeer peer;
  peer.Connect();
  for (int i = 0; i < 40; ++i) peer.FetchAdd(i, 1);
  Time at = 0;
  for (int i = 0; i < 40; ++i) {
    at += 6 * kMillisecond;  // longer than the first probe takes
    while (peer.NextTimer() < at) {
      peer.At(peer.NextTimer());
      peer.Transmit();
    }
    peer.At(at);
    peer.Transmit();
    peer.AtomicAck(100 + i, 0);
    EXPECT_EQ(peer.Completions(), std::to_string(i) + " ok 8");
  }
  // The first, and two before later requests have given a sample.
  EXPECT_EQ(peer.qp->counters().probes, 3u);
}

// Each report of a gap that was sent again is a retry: without a timeout, too,
// there is an end.
TEST(RequesterLossTest, NaksWithoutProgressAreCounted) {
  for (const uint8_t retry_cnt : {0, 1, 7}) {
    RequesterPeer peer;
    peer.attributes.retry_cnt = retry_cnt;
    peer.attributes.timeout = 0;
    peer.Connect();
    peer.Send(1, 1);
    peer.Send(2, 1);
    peer.Transmit();
    for (int nak = 0; nak <= retry_cnt; ++nak) {
      RunTo(&peer, nak * kApart);
      peer.Nak(100);
      EXPECT_EQ(peer.Transmit(), "SEND_ONLY 100 A [1]; SEND_ONLY 101 A [1]");
    }
    EXPECT_EQ(peer.Completions(), "");
    RunTo(&peer, (retry_cnt + 1) * kApart);
    peer.Nak(100);
    EXPECT_EQ(peer.Completions(), "1 status 12; 2 status 5");
    EXPECT_EQ(peer.qp->counters().retries_exceeded, 1u);
    EXPECT_EQ(peer.in_flight(), 0u);
    EXPECT_EQ(peer.Transmit(), "");
  }
}

TEST(RequesterLossTest, ProgressBetweenNaksForgives) {
  RequesterPeer peer;
  peer.attributes.retry_cnt = 1;
  peer.attributes.timeout = 0;
  peer.Connect();
  for (int i = 0; i < 20; ++i) peer.Send(i, 1, 0);
  peer.Transmit();
  for (int i = 0; i < 20; ++i) {
    for (int again = 0; again < 2; ++again) {
      RunTo(&peer, (2 * i + again) * kApart);
      peer.Nak(100 + i);
      peer.Transmit();
    }
  }
  EXPECT_EQ(peer.qp->state(), QpState::kRts);
  EXPECT_EQ(peer.qp->counters().sequence_naks_received, 40u);
}

// The peer acknowledges what comes behind a READ, and never answers that.
TEST(RequesterLossTest, ImpliedNaksWithoutProgressAreCounted) {
  RequesterPeer peer;
  peer.attributes.retry_cnt = 2;
  peer.attributes.timeout = 0;
  peer.Connect();
  peer.Read(1, 8);
  peer.Send(2, 1);
  peer.Transmit();
  for (int ack = 0; ack <= 2; ++ack) {
    RunTo(&peer, ack * kApart);
    peer.Ack(101);
    EXPECT_EQ(peer.Transmit(), "READ_REQUEST 100 A va 0 len 8");
  }
  RunTo(&peer, 3 * kApart);
  peer.Ack(101);
  EXPECT_EQ(peer.Completions(), "1 status 12; 2 status 5");
}

// The rest of one long answer, whose beginning was lost, is one report.
TEST(RequesterLossTest, ALongAnswerIsNotManyGaps) {
  RequesterPeer peer;
  peer.attributes.retry_cnt = 0;
  peer.Connect();
  Measure(&peer, 10 * kMicrosecond);
  peer.Read(2, 64 * 256);
  peer.Transmit();
  for (uint32_t i = 1; i < 64; ++i) {
    peer.At((10 + 15 * i) * kMicrosecond);
    peer.ReadResponse(i < 63 ? wire::Operation::kReadResponseMiddle
                             : wire::Operation::kReadResponseLast,
                      101 + i, 256);
    peer.Transmit();
  }
  EXPECT_EQ(peer.qp->state(), QpState::kRts);
}

// NAKs alone do not keep a connection alive.
TEST(RequesterLossTest, NaksWithoutProgressEndInTheTimeout) {
  RequesterPeer peer;
  peer.attributes.retry_cnt = 1;
  peer.Connect();
  peer.Send(1, 1);
  for (Time at = 0; at < 3 * kTimeout14; at += kMillisecond) {
    peer.At(at);
    peer.Transmit();
    peer.Nak(100);
  }
  EXPECT_EQ(peer.qp->state(), QpState::kErr);
  EXPECT_EQ(peer.Completions(), "1 status 12");
}

// Its memory went away between the first time and the second, and the first
// had arrived after all.
TEST(RequesterLossTest, ReplayThatFailsLocallyIsForgivenByAnAck) {
  RequesterPeer peer;
  FakeMemory::Region& region =
      peer.memory.Add(0x900000, 64, peer.kPd, kAccessLocalWrite);
  peer.Connect();
  peer.Send(1, 1);
  peer.Post({.wr_id = 2, .flags = kSendSignaled},
            {{region.va, 8, region.lkey}});
  peer.Send(3, 1);
  peer.Transmit();
  region.valid = false;
  peer.Nak(100);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 100 A [1]");
  peer.Ack(101);
  EXPECT_EQ(peer.Completions(), "1 ok; 2 ok");
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 102 A [1]");
  peer.Ack(102);
  EXPECT_EQ(peer.Completions(), "3 ok");
  EXPECT_EQ(peer.in_flight(), 0u);
}

TEST(RequesterLossTest, ProbesAreAsLongAsTheRoundTrip) {
  RequesterPeer peer;
  peer.Connect();
  Measure(&peer, 2 * kMillisecond);
  peer.Send(2, 1);
  peer.Transmit();
  // RFC 6298: rtt + 4 * rtt / 2.
  EXPECT_EQ(peer.NextTimer(), (2 + 6) * kMillisecond);
}

TEST(RequesterLossTest, ProgressPutsOffTheProbe) {
  RequesterPeer peer;
  peer.Connect();
  for (int i = 1; i <= 3; ++i) peer.Send(i, 1);
  peer.Transmit();
  peer.At(3 * kMillisecond);
  peer.Ack(100);
  EXPECT_EQ(peer.NextTimer(), 3 * kMillisecond + peer.path().ProbeTimeout());
}

TEST(RequesterLossTest, ProbeOfAReadAsksAgain) {
  RequesterPeer peer;
  peer.Connect();
  peer.Read(1, 600);
  peer.Transmit();
  peer.ReadResponse(wire::Operation::kReadResponseFirst, 100, 256);
  peer.At(peer.NextTimer());
  EXPECT_EQ(peer.Transmit(), "READ_REQUEST 101 A va 256 len 344");
}

TEST(RequesterLossTest, WindowHoldsBackAndOpens) {
  RequesterPeer peer;
  peer.Connect();
  peer.Write(1, 512 * 256);
  peer.Transmit();
  EXPECT_EQ(peer.sent.size(), 256u);
  EXPECT_TRUE(peer.sent.back().ack_req);
  EXPECT_EQ(peer.in_flight(), Path::kInitialWindow);
  peer.Ack(109);
  // Slow start: what is acknowledged opens the window twice.
  EXPECT_EQ(peer.path().window(), Path::kInitialWindow + 10 * 512);
  peer.Transmit();
  EXPECT_EQ(peer.sent.size(), 20u);
  peer.Nak(110);
  EXPECT_LT(peer.path().window(), Path::kInitialWindow);
  EXPECT_EQ(peer.in_flight(), 0u);
}

TEST(RequesterLossTest, CongestionNotificationShrinksTheWindow) {
  RequesterPeer peer;
  peer.Connect();
  wire::Headers cnp;
  cnp.bth.opcode = wire::kOpcodeCnp;
  cnp.bth.becn = true;
  cnp.bth.dest_qpn = peer.kQpn;
  peer.Deliver(cnp, wire::kCnpPayloadSize);
  const uint64_t once = peer.path().window();
  EXPECT_LT(once, Path::kInitialWindow);
  peer.Deliver(cnp, wire::kCnpPayloadSize);
  EXPECT_EQ(peer.path().window(), once);  // of the same round trip
}

// On a path that loses packets what was sent again, and is not answered, is
// sent once more before the probe; that counts as no silence.
TEST(RequesterLossTest, EarlyProbesOnAPathThatLoses) {
  RequesterPeer peer;
  peer.Connect();
  Measure(&peer, 40 * kMicrosecond);
  for (int i = 2; i <= 4; ++i) peer.Send(i, 1);
  peer.Transmit();
  EXPECT_EQ(peer.NextTimer(), 40 * kMicrosecond + peer.path().ProbeTimeout());
  peer.Nak(101);
  EXPECT_EQ(peer.Transmit(),
            "SEND_ONLY 101 A [1]; SEND_ONLY 102 [1]; SEND_ONLY 103 A [1]");
  const Time early =
      40 * kMicrosecond + peer.path().EarlyProbeTimeout(40 * kMicrosecond);
  ASSERT_LT(early, 40 * kMicrosecond + peer.path().ProbeTimeout());
  EXPECT_EQ(peer.NextTimer(), early);
  const uint64_t in_flight = peer.path().in_flight();
  const uint32_t silences = peer.path().silences();
  peer.At(early);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 101 A [1]");
  EXPECT_EQ(peer.path().in_flight(), in_flight);
  EXPECT_EQ(peer.path().silences(), silences);
  EXPECT_EQ(peer.qp->counters().probes, 1u);
  peer.Ack(103);
  EXPECT_EQ(peer.Completions(), "2 ok; 3 ok; 4 ok");
}

// A long replay after the first NAK waits for an answer, which shows that the
// peer has kept the rest.
TEST(RequesterLossTest, AReplayTriesWhatThePeerKeeps) {
  RequesterPeer peer;
  peer.Connect();
  for (int i = 1; i <= 40; ++i) peer.Send(i, 1);
  peer.Transmit();
  peer.Nak(100);
  peer.Transmit();
  EXPECT_EQ(peer.qp->counters().retransmitted, 16u);
  peer.Ack(139);
  EXPECT_EQ(peer.Transmit(), "");
  // From now on the gap alone is sent again.
  peer.At(kSecond);
  for (int i = 41; i <= 60; ++i) peer.Send(i, 1);
  peer.Transmit();
  peer.Nak(145);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 145 A [1]");
}

// One that keeps nothing answers what it was sent, and gets the rest.
TEST(RequesterLossTest, APeerThatKeepsNothingGetsTheRest) {
  RequesterPeer peer;
  peer.Connect();
  for (int i = 1; i <= 40; ++i) peer.Send(i, 1);
  peer.Transmit();
  peer.Nak(100);
  peer.Transmit();
  peer.Ack(115);
  peer.Transmit();
  EXPECT_EQ(peer.qp->counters().retransmitted, 40u);
  // Nor is it tried at the next loss.
  peer.Ack(139);
  peer.At(kSecond);
  for (int i = 41; i <= 80; ++i) peer.Send(i, 1);
  peer.Transmit();
  peer.Nak(140);
  peer.Transmit();
  EXPECT_EQ(peer.qp->counters().retransmitted, 80u);
}

}  // namespace
}  // namespace transport
