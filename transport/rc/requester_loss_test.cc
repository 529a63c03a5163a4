// Probes, timeouts and the retries that they cost, to the nanosecond.
#include <vector>

#include "gtest/gtest.h"
#include "transport/rc/requester.h"
#include "transport/testing/requester_peer.h"

namespace transport {
namespace {

// The local ACK timeouts, of a peer that has not answered yet.
constexpr Time kTimeout14 = int64_t{4096} << 14;  // 67.1 ms
constexpr Time kTimeout8 = int64_t{4096} << 8;    // 1.05 ms
// NAKs this far apart are not of one flight, and no probe coincides with one.
constexpr Time kApart = 11 * kMillisecond;
constexpr Time kFirstProbe = 4 * kMillisecond;  // without a round trip known

// Runs up to `time` after the start, and transmits when timers expire.
void RunTo(RequesterPeer* peer, Time time) {
  while (peer->NextTimer() < time) {
    peer->At(peer->NextTimer());
    peer->Transmit();
  }
  peer->At(time);
}

// ibv_modify_qp(3): retry_cnt retransmissions, an error at the timeout after
// them. Probes in between spend no retry.
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

// For a peer that has answered before, the timeout is twice the requested one,
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
  EXPECT_EQ(peer.path().window(), Path::kMinWindow);
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
  peer.MeasureRoundTrip(100 * kMicrosecond);
  for (int i = 2; i <= 4; ++i) peer.Send(i, 1);
  peer.Transmit();
  const Time begin = 100 * kMicrosecond;
  // Never sooner than a millisecond.
  EXPECT_EQ(peer.NextTimer(), begin + kMillisecond);
  peer.At(begin + kMillisecond);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 103 A [1]");
  EXPECT_EQ(peer.path().window(), Path::kInitialWindow);
  peer.At(begin + 3 * kMillisecond);
  EXPECT_EQ(peer.path().window(), Path::kMinWindow);
  EXPECT_EQ(peer.Transmit(),
            "SEND_ONLY 101 A [1]; SEND_ONLY 102 [1]; SEND_ONLY 103 A [1]");
  EXPECT_EQ(peer.NextTimer(), begin + 7 * kMillisecond);
  EXPECT_EQ(peer.qp->counters().probes, 2u);
  EXPECT_EQ(peer.qp->counters().timeouts, 0u);
  peer.Ack(103);
  EXPECT_EQ(peer.Completions(), "2 ok; 3 ok; 4 ok");
  // A retransmission measures no round trip.
  EXPECT_EQ(peer.path().smoothed_rtt(), 100 * kMicrosecond);
}

// The peer was not scheduled for a while: nothing was lost.
TEST(RequesterLossTest, AcksOfOriginalPacketsRestoreTheWindow) {
  RequesterPeer peer;
  peer.Connect();
  peer.Write(1, 100 * 256);
  peer.Transmit();
  EXPECT_EQ(peer.sent.size(), 100u);
  peer.At(3 * kFirstProbe);
  peer.Transmit();
  EXPECT_LT(peer.sent.size(), 40u);  // as many as the smallest window takes
  EXPECT_EQ(peer.path().window(), Path::kMinWindow);
  peer.Ack(165);
  EXPECT_GE(peer.path().window(), Path::kInitialWindow);
}

TEST(RequesterLossTest, AcksOfRetransmissionsDoNotRestoreTheWindow) {
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

// The peer has reported the gap, and is silent until it fills.
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

// Each answer arrives after the first probe, and gives no sample of the round
// trip. If timeouts stayed that short, everything would always be sent twice.
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

// Without a timeout each report of a gap that was retransmitted spends a retry:
// otherwise there is no end.
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

// The peer acknowledges what is behind a READ, and never answers the READ.
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

// The rest of one long response whose beginning was lost counts as one report.
TEST(RequesterLossTest, ALongAnswerIsNotManyGaps) {
  RequesterPeer peer;
  peer.attributes.retry_cnt = 0;
  peer.attributes.timeout = 0;  // else no report costs a retry
  peer.Connect();
  peer.MeasureRoundTrip(10 * kMicrosecond);
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

// NAKs alone do not keep a connection alive, and do not end it before the
// timeout.
TEST(RequesterLossTest, NaksWithoutProgressEndInTheTimeout) {
  for (const uint8_t retry_cnt : {0, 1, 7}) {
    RequesterPeer peer;
    peer.attributes.retry_cnt = retry_cnt;
    peer.Connect();
    peer.Send(1, 1);
    Time at = 0;
    for (; peer.qp->state() == QpState::kRts; at += kMillisecond) {
      peer.At(at);
      peer.Transmit();
      peer.Nak(100);
    }
    // Each timeout is noticed up to one step of the loop late.
    const Time end = (retry_cnt + 1) * kTimeout14;
    EXPECT_GT(at, end);
    EXPECT_LE(at, end + (retry_cnt + 2) * kMillisecond);
    EXPECT_EQ(peer.Completions(), "1 status 12");
  }
}

// The memory of the request was withdrawn between the first transmission and
// the second, and the first had arrived.
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
  peer.MeasureRoundTrip(2 * kMillisecond);
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

// On a path that loses packets, a retransmission that is not answered is sent
// once more before the probe. That does not count as silence.
TEST(RequesterLossTest, EarlyProbesOnAPathThatLoses) {
  RequesterPeer peer;
  peer.Connect();
  peer.MeasureRoundTrip(40 * kMicrosecond);
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

// A long replay after the first NAK stops for an answer, which shows that the
// peer has buffered the rest.
TEST(RequesterLossTest, AReplayTriesWhatThePeerBuffers) {
  RequesterPeer peer;
  peer.Connect();
  for (int i = 1; i <= 40; ++i) peer.Send(i, 1);
  peer.Transmit();
  peer.Nak(100);
  peer.Transmit();
  EXPECT_EQ(peer.qp->counters().retransmitted, 16u);
  peer.Ack(139);
  EXPECT_EQ(peer.Transmit(), "");
  // From now on only the gap is retransmitted.
  peer.At(kSecond);
  for (int i = 41; i <= 60; ++i) peer.Send(i, 1);
  peer.Transmit();
  peer.Nak(145);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 145 A [1]");
}

// A peer that drops acknowledges what it was sent, and gets the rest.
TEST(RequesterLossTest, APeerThatDropsGetsTheRest) {
  RequesterPeer peer;
  peer.Connect();
  for (int i = 1; i <= 40; ++i) peer.Send(i, 1);
  peer.Transmit();
  peer.Nak(100);
  peer.Transmit();
  peer.Ack(115);
  peer.Transmit();
  EXPECT_EQ(peer.qp->counters().retransmitted, 40u);
  // The next loss is no further trial.
  peer.Ack(139);
  peer.At(kSecond);
  for (int i = 41; i <= 80; ++i) peer.Send(i, 1);
  peer.Transmit();
  peer.Nak(140);
  peer.Transmit();
  EXPECT_EQ(peer.qp->counters().retransmitted, 80u);
}

// Sends 40 packets from `*psn` on. The first is lost; all arrive in the end.
// Returns how many are retransmitted for the NAK, before an answer.
uint64_t LoseTheFirst(RequesterPeer* peer, uint32_t* psn) {
  constexpr int kPackets = 40;
  peer->now += kSecond;
  for (int i = 0; i < kPackets; ++i) peer->Send(1, 1);
  peer->Transmit();
  const uint64_t before = peer->qp->counters().retransmitted;
  peer->Nak(*psn);
  peer->Transmit();
  const uint64_t sent = peer->qp->counters().retransmitted - before;
  peer->Ack(*psn + static_cast<uint32_t>(sent) - 1);
  peer->Transmit();
  peer->Ack(*psn + kPackets - 1);
  peer->Completions();
  *psn += kPackets;
  return sent;
}

// For a peer that drops what is beyond a gap: how many NAKs it takes from the
// first trial to the second one.
int NaksUntilNextTrial(RequesterPeer* peer) {
  uint32_t psn = peer->attributes.sq_psn;
  EXPECT_EQ(LoseTheFirst(peer, &psn), 16u);
  for (int naks = 1; naks < 100; ++naks) {
    const uint64_t sent = LoseTheFirst(peer, &psn);
    if (sent == 16) return naks;
    EXPECT_EQ(sent, 40u);
  }
  return -1;
}

// The peer may only have lost two packets in a row, which looks the same.
TEST(RequesterLossTest, APeerThatDropsIsTriedAgainAfterEightNaks) {
  RequesterPeer peer;
  peer.Connect();
  EXPECT_EQ(NaksUntilNextTrial(&peer), 8);
}

// The next connection is another peer.
TEST(RequesterLossTest, ResetForgetsHowOftenAPeerHasDropped) {
  RequesterPeer peer;
  peer.Connect();
  uint32_t psn = peer.attributes.sq_psn;
  for (int i = 0; i < 4; ++i) LoseTheFirst(&peer, &psn);
  ASSERT_EQ(peer.Modify(QpState::kReset), 0);
  peer.Completions();
  peer.Connect();
  EXPECT_EQ(NaksUntilNextTrial(&peer), 8);
}

}  // namespace
}  // namespace transport
