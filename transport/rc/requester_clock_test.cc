// Jumps of the clock: the machine was suspended, or the process stopped.
#include <gtest/gtest.h>

#include "transport/testing/requester_peer.h"

namespace transport {
namespace {

constexpr Time kJump = 600 * kSecond;

// Nothing happens in between.
void Jump(RequesterPeer* peer) { peer->now += kJump; }

// What arrived meanwhile is processed before the timers, as the lane does: the
// only retry is not spent.
TEST(RequesterClockTest, AnAnswerIsInTime) {
  RequesterPeer peer;
  peer.attributes.retry_cnt = 0;
  peer.Connect();
  peer.Send(1, 600);
  peer.Transmit();
  Jump(&peer);
  peer.Ack(102);
  peer.endpoint.OnTimer(peer.now);
  EXPECT_EQ(peer.Completions(), "1 ok");
  EXPECT_EQ(peer.Transmit(), "");
  EXPECT_EQ(peer.qp->counters().timeouts, 0u);
  EXPECT_EQ(peer.NextTimer(), kNever);
}

// However many timeouts have passed, they count as one: one retry, and one
// retransmission.
TEST(RequesterClockTest, ASilenceIsOneTimeout) {
  RequesterPeer peer;
  peer.attributes.retry_cnt = 1;
  peer.Connect();
  peer.Send(1, 1);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 100 A [1]");
  Jump(&peer);
  peer.endpoint.OnTimer(peer.now);
  EXPECT_EQ(peer.qp->counters().timeouts, 1u);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 100 A [1]");
  EXPECT_EQ(peer.Transmit(), "");
  EXPECT_GE(peer.NextTimer(), peer.now - peer.kStart + kMillisecond);
  peer.Ack(100);
  EXPECT_EQ(peer.Completions(), "1 ok");
  EXPECT_EQ(peer.qp->counters().retries_exceeded, 0u);
}

// A READ that has lost part of its response requests the missing part.
TEST(RequesterClockTest, AReadContinues) {
  RequesterPeer peer;
  peer.Connect();
  peer.Read(1, 512);
  EXPECT_EQ(peer.Transmit(), "READ_REQUEST 100 A va 0 len 512");
  peer.ReadResponse(wire::Operation::kReadResponseFirst, 100, 256);
  Jump(&peer);
  peer.endpoint.OnTimer(peer.now);
  EXPECT_EQ(peer.Transmit(), "READ_REQUEST 101 A va 256 len 256");
  EXPECT_EQ(peer.Transmit(), "");
  peer.ReadResponse(wire::Operation::kReadResponseOnly, 101, 256);
  EXPECT_EQ(peer.Completions(), "1 ok 512");
}

// A round trip with a jump in it is one sample: later ones outweigh it.
TEST(RequesterClockTest, TimeoutsRecover) {
  RequesterPeer peer;
  peer.Connect();
  peer.Send(1, 1);
  peer.Transmit();
  Jump(&peer);
  peer.Ack(100);
  for (uint32_t i = 1; i <= 200; ++i) {
    peer.Send(1, 1);
    peer.Transmit();
    peer.now += 50 * kMicrosecond;
    peer.Ack(100 + i);
  }
  EXPECT_LT(peer.path().ProbeTimeout(), kSecond);
}

// An idle connection sends nothing.
TEST(RequesterClockTest, AnIdleRequesterStaysIdle) {
  RequesterPeer peer;
  peer.Connect();
  peer.Send(1, 1);
  peer.Transmit();
  peer.Ack(100);
  Jump(&peer);
  peer.endpoint.OnTimer(peer.now);
  EXPECT_EQ(peer.Transmit(), "");
  EXPECT_EQ(peer.NextTimer(), kNever);
}

}  // namespace
}  // namespace transport
