// Storms of responses, from a peer or from an attacker who knows its port and
// the PSNs in flight. However many arrive, what is retransmitted for them is
// bounded by what they acknowledge, and by time.
#include <string>

#include "gtest/gtest.h"
#include "transport/rc/requester.h"
#include "transport/testing/requester_peer.h"

namespace transport {
namespace {

constexpr uint32_t kFirst = RequesterPeer::kPsn;
constexpr uint32_t kMessages = 256;  // as many packets
// Retransmissions at most for each PSN that a storm acknowledges.
constexpr uint64_t kMaxRetransmissions = 8;

// A peer with `kMessages` messages of one packet outstanding, from PSN 101 on.
void Fill(RequesterPeer* peer) {
  peer->Connect();
  peer->MeasureRoundTrip(kMillisecond);
  for (uint32_t i = 0; i < kMessages; ++i) peer->Send(2 + i, 1);
  peer->Transmit();
  EXPECT_EQ(peer->sent.size(), kMessages);
}

TEST(RequesterStormTest, NaksOfSuccessivePsns) {
  RequesterPeer peer;
  Fill(&peer);
  uint64_t again = 0;
  for (uint32_t i = 1; i < kMessages; ++i) {
    peer.Nak(kFirst + 1 + i);
    peer.Transmit();
    again += peer.sent.size();
  }
  // As many as there is credit for, and then four for each packet that is
  // acknowledged.
  EXPECT_LE(again, kMaxRetransmissions * kMessages);
  EXPECT_EQ(again, 2034u);
  peer.Ack(kFirst + kMessages);
  EXPECT_EQ(peer.in_flight(), 0u);
  EXPECT_EQ(peer.qp->state(), QpState::kRts);
}

// Each RNR NAK acknowledges one packet, and looks like a true answer.
TEST(RequesterStormTest, RnrNaksOfSuccessivePsns) {
  RequesterPeer peer;
  Fill(&peer);
  uint64_t again = 0;
  for (uint32_t i = 1; i < kMessages; ++i) {
    peer.RnrNak(kFirst + 1 + i, 1);  // 10 us
    peer.Transmit();
    again += peer.sent.size();
  }
  EXPECT_EQ(again, 0u);  // no time has passed
  EXPECT_EQ(peer.NextTimer(), kMillisecond + 10 * kMicrosecond);
  peer.At(kMillisecond + 10 * kMicrosecond);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 356 A [1]");
  peer.Ack(kFirst + kMessages);
  EXPECT_EQ(peer.in_flight(), 0u);
}

TEST(RequesterStormTest, RnrNaksAndTheirEnds) {
  RequesterPeer peer;
  Fill(&peer);
  uint64_t again = 0;
  Time time = kMillisecond;
  for (uint32_t i = 1; i + 1 < kMessages; i += 2) {
    peer.RnrNak(kFirst + 1 + i, 1);
    time += 10 * kMicrosecond;
    peer.At(time);
    peer.Transmit();
    again += peer.sent.size();
    peer.Ack(kFirst + 1 + i);
    peer.Transmit();
    again += peer.sent.size();
  }
  EXPECT_LE(again, kMaxRetransmissions * kMessages);
  EXPECT_EQ(again, 2024u);
  EXPECT_EQ(peer.qp->state(), QpState::kRts);
}

// Made-up acknowledgements make the round trip look short.
TEST(RequesterStormTest, NaksOfOnePsnAfterAShortRoundTrip) {
  RequesterPeer peer;
  peer.attributes.timeout = 0;  // else no NAK costs a retry
  peer.Connect();
  for (int i = 0; i < 100; ++i) {
    peer.Send(i, 1);
    peer.Transmit();
    ++peer.now;
    peer.Ack(kFirst + i);
  }
  EXPECT_EQ(peer.path().smoothed_rtt(), 1);
  for (uint32_t i = 0; i < kMessages; ++i) peer.Send(100 + i, 1);
  peer.Transmit();
  uint64_t again = 0;
  for (int i = 0; i < 10'000; ++i) {
    peer.now += 100;
    peer.Nak(kFirst + 100);
    peer.Transmit();
    again += peer.sent.size();
  }
  // 50 retransmissions in 1 ms, one in 20 us. Each has only the 16 packets that
  // show whether the peer buffers.
  EXPECT_EQ(again, 50 * 16u);
  EXPECT_EQ(peer.qp->state(), QpState::kRts);
}

// A READ at kFirst + 100 and kMessages SENDs behind it are outstanding, on a
// path whose round trip is 1 ns.
void SendBehindARead(RequesterPeer& peer) {
  peer.Connect();
  for (int i = 0; i < 100; ++i) {
    peer.Send(i, 1);
    peer.Transmit();
    ++peer.now;
    peer.Ack(kFirst + i);
  }
  peer.Read(100, 1024);
  for (uint32_t i = 0; i < kMessages; ++i) peer.Send(101 + i, 1);
  peer.Transmit();
}

// A NAK beyond a READ that is not answered reports that the READ's response was
// lost.
TEST(RequesterStormTest, NaksBeyondARead) {
  RequesterPeer peer;
  SendBehindARead(peer);
  uint64_t again = 0;
  for (uint32_t i = 0; i < kMessages; ++i) {
    peer.now += 50;
    peer.Nak(kFirst + 104 + i);
    peer.Transmit();
    again += peer.sent.size();
  }
  EXPECT_EQ(again, 1 + kMessages);  // once within 20 us
  EXPECT_EQ(peer.qp->state(), QpState::kRts);
}

// The same with ACKs: the READ is requested again once in a while.
TEST(RequesterStormTest, AcknowledgementsBeyondARead) {
  RequesterPeer peer;
  SendBehindARead(peer);
  uint64_t again = 0;
  for (int i = 0; i < 10'000; ++i) {
    peer.now += 100;
    peer.Ack(kFirst + 104 + i % kMessages);
    peer.Transmit();
    again += peer.sent.size();
  }
  EXPECT_EQ(again, 50u);  // in 1 ms
}

TEST(RequesterStormTest, AcknowledgementsThatAreOld) {
  RequesterPeer peer;
  Fill(&peer);
  peer.Ack(kFirst + 100);
  peer.Transmit();
  const Time due = peer.NextTimer();
  const uint64_t in_flight = peer.in_flight();
  const uint64_t window = peer.path().window();
  for (uint32_t i = 0; i < 10'000; ++i) {
    peer.now += 100;
    peer.Ack(kFirst + i % 101);
    EXPECT_EQ(peer.Transmit(), "");
  }
  EXPECT_EQ(peer.NextTimer(), due);  // they are no signs of life
  EXPECT_EQ(peer.in_flight(), in_flight);
  EXPECT_EQ(peer.path().window(), window);
}

}  // namespace
}  // namespace transport
