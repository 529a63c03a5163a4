// A lane on a virtual clock: every pending task has a thread that will do it.
#include <gtest/gtest.h>

#include <algorithm>

#include "rxe_user/testing/lane_end.h"
#include "wire/icrc.h"
#include "wire/packet.h"

namespace rxe_user {
namespace {

using transport::kMicrosecond;
using transport::kMillisecond;
using transport::kNever;
using transport::Time;

Time& now = virtual_now;

TEST_F(LaneTest, SendsAtOnceWhenIdle) {
  EXPECT_TRUE(helper_.armed);
  EXPECT_EQ(helper_.wakes, 0);
  Post();
  EXPECT_EQ(PacketsSent(), 1);
  // The helper has to be told the retransmission timeout.
  EXPECT_EQ(helper_.wakes, 1);
  EXPECT_LT(lane_.RunHelper(), kNever);
  EXPECT_TRUE(helper_.armed);
  // From now on the helper wakes in time by itself.
  for (int i = 0; i < 10; ++i) Post();
  EXPECT_EQ(PacketsSent(), 11);
  EXPECT_EQ(helper_.wakes, 1);
}

// The helper thread finds no memory: it retries, and leaves the lane unlocked.
TEST_F(LaneTest, ContinuesWhenThereIsMemoryAgain) {
  LaneEnd peer;
  Join(&peer);
  peer.Post();
  ASSERT_FALSE(port_->on_the_wire.empty());
  port_->no_memory = true;
  for (int i = 0; i < 3; ++i) {
    const Time wake = lane_.RunHelper();
    EXPECT_GT(wake, now);
    EXPECT_LE(wake, now + 10 * kMillisecond);
    now = wake;
  }
  EXPECT_EQ(PacketsSent(), 0);
  port_->no_memory = false;
  lane_.RunHelper();
  EXPECT_EQ(PacketsSent(), 1);  // the ACK
}

TEST_F(LaneTest, BatchesPostsWhileTheApplicationPolls) {
  // The batcher learns that the application posts in rows.
  for (uint32_t i = 0; i < 4; ++i) Post();
  EnterPollingMode();
  const size_t bursts = port_->packets.size();
  const int before = PacketsSent();
  const int wakes = helper_.wakes;
  lane_.Progress();
  for (int i = 0; i < 20; ++i) Post();
  EXPECT_EQ(lane_.counters().posts_batched, 20u);
  EXPECT_EQ(PacketsSent(), before);
  lane_.Progress();
  EXPECT_EQ(port_->packets.size(), bursts + 1);
  EXPECT_EQ(PacketsSent(), before + 20);
  EXPECT_EQ(helper_.wakes, wakes);
}

TEST_F(LaneTest, WakesTheHelperForRowsOfPosts) {
  Post();
  lane_.RunHelper();
  for (int i = 0; i < 20 && helper_.wakes < 2; ++i) {
    lane_.Progress();
    for (int posts = 0; posts < 5; ++posts) Post();
  }
  EXPECT_EQ(helper_.wakes, 2) << "it was not called";
  // The helper sends the remaining posts, whatever else it finds.
  for (int i = 0; i < 3; ++i) Post();
  while (lane_.RunHelper() == 0) {
  }
  lane_.DropLease();
  lane_.RunHelper();
  EXPECT_TRUE(helper_.armed);
  const Lane::Guard guard(lane_);
  EXPECT_FALSE(lane_.endpoint().HasTransmit());
}

TEST_F(LaneTest, DroppingTheLeaseSendsLeftovers) {
  Post();
  EnterPollingMode();
  const int before = PacketsSent();
  lane_.Progress();
  for (int i = 0; i < 5; ++i) Post();
  lane_.DropLease();
  EXPECT_EQ(PacketsSent(), before + 5);
  EXPECT_TRUE(helper_.armed);
}

// A request and the ACK of the peer's last request arrive together. The ACK,
// though last in the datagram, is processed first, as if hardware had sent it.
TEST_F(LaneTest, AnAckIsProcessedBeforeTheRequestsInItsBatch) {
  LaneEnd peer;
  Join(&peer);
  end_.to = &peer;
  peer.to = &end_;
  Post();
  const auto seen = [&] { return end_.inbox[0]; };
  end_.cq.on_push = [&] { EXPECT_EQ(seen(), 0u); };
  {
    // Holding the lock delays both until they can share a send.
    const Lane::Guard guard(peer.lane);
    const FakePort::Datagrams request = peer.port->on_the_wire.front();
    peer.port->on_the_wire.clear();
    transport::Datagram datagram;
    datagram.bytes = request.bytes;
    datagram.source = request.source;
    datagram.destination = request.destination;
    datagram.source_port = request.source_port;
    peer.lane.endpoint().OnDatagram(datagram, now);
    peer.PostLocked();
  }
  ASSERT_EQ(port_->on_the_wire.size(), 1u);
  ASSERT_EQ(peer.port->packets.back(), 2);
  lane_.Progress();
  EXPECT_EQ(seen(), 1u);
  EXPECT_TRUE(end_.cq.Poll());
}

// A helper that the sockets wake answers a single arrival before it receives
// again.
TEST_F(LaneTest, AnswersBeforeItReceivesAgain) {
  LaneEnd peer;
  Join(&peer);
  port_->says_more = true;
  peer.Post();
  port_->calls.clear();
  ASSERT_TRUE(helper_.armed);
  lane_.RunHelper();
  EXPECT_EQ(port_->calls, "rs");

  // A thread that waits receives again, since it would be woken otherwise.
  lane_.EnterWait();
  peer.Post();
  port_->calls.clear();
  lane_.PollOnce(now);
  EXPECT_EQ(port_->calls, "rrs");
  lane_.LeaveWait();

  // While the application polls, no thread would be woken.
  EnterPollingMode();
  now += 10 * kMillisecond;
  peer.Post();
  port_->calls.clear();
  lane_.RunHelper();
  EXPECT_EQ(port_->calls, "rrs");
}

TEST_F(LaneTest, YieldsAfterManyEmptyPolls) {
  LaneEnd peer;
  Join(&peer);
  const auto yields = [this] { return lane_.counters().yields; };
  Post();
  for (int us = 0; us < 25; ++us) {
    lane_.Progress();
    now += kMicrosecond;
  }
  EXPECT_EQ(yields(), 0u);
  for (int us = 0; us < 25; ++us) {
    lane_.Progress();
    now += kMicrosecond;
  }
  EXPECT_GT(yields(), 10u);
  // Posts that take that long do not make it yield.
  const uint64_t before = yields();
  port_->send_cost = 20 * kMicrosecond;
  for (int i = 0; i < 20; ++i) {
    Post();
    Post();
    lane_.Progress();
  }
  EXPECT_EQ(yields(), before);
}

// The idle time counts from the end of a round that found something.
TEST_F(LaneTest, KeepsItsCoreAfterALongRound) {
  LaneEnd peer;
  Join(&peer);
  peer.Post();
  ASSERT_FALSE(port_->on_the_wire.empty());
  port_->send_cost = 40 * kMicrosecond;
  ASSERT_EQ(lane_.Progress(), LaneImpl::PollResult::kSomething);
  lane_.Progress();
  EXPECT_EQ(lane_.counters().yields, 0u);
  now += 40 * kMicrosecond;
  lane_.Progress();
  EXPECT_EQ(lane_.counters().yields, 1u);
}

// A poll receives once, so the ACK may still be in the socket when its timer is
// due.
TEST_F(LaneTest, ReadsWhatHasArrivedBeforeTimersJudge) {
  LaneEnd peer;
  Join(&peer);
  end_.to = &peer;
  peer.to = &end_;
  EnterPollingMode();
  peer.Post();
  Post();
  peer.lane.RunHelper();
  ASSERT_EQ(port_->on_the_wire.size(), 2u);
  {
    const Lane::Guard guard(lane_);
    now = lane_.endpoint().NextTimeout();
  }
  ASSERT_LT(now, kNever);
  port_->one_at_a_time = true;
  lane_.Progress();
  EXPECT_TRUE(end_.cq.Poll());
  lane_.Progress();
  EXPECT_EQ(PacketsSent(), 2) << "a WRITE and an ACK, and no probe";
}

TEST_F(LaneTest, KeepsBlockedSendsAndRetries) {
  port_->block_next = true;
  Post();
  Post();
  EXPECT_EQ(PacketsSent(), 1);
  EXPECT_GE(helper_.wakes, 1);
  // The helper neither spins nor sleeps too long.
  Time until = lane_.RunHelper();
  for (int i = 0; i < 20; ++i) {
    now = until;
    until = lane_.RunHelper();
    ASSERT_GT(until, now);
    ASSERT_LE(until, now + 5 * kMillisecond);
  }
  EXPECT_GT(until, now + kMillisecond);
  port_->block_next = false;
  lane_.RunHelper();
  EXPECT_GE(PacketsSent(), 2);  // and perhaps a probe
}

TEST_F(LaneTest, AWaitingThreadReplacesTheHelper) {
  lane_.EnterWait();
  EXPECT_FALSE(helper_.armed);
  Post();
  helper_.wakes = 0;
  EXPECT_FALSE(lane_.PollOnce(now));
  // The helper keeps the deadline.
  EXPECT_LT(lane_.RunHelper(), kNever);
  EXPECT_FALSE(helper_.armed);
  Post();
  EXPECT_EQ(helper_.wakes, 0);
  lane_.RunHelper();
  EXPECT_FALSE(helper_.armed);
  lane_.LeaveWait();
  EXPECT_TRUE(helper_.armed);
}

// A thread that already waits does not wait on a socket that is added later.
TEST_F(LaneTest, AddedSocketsAreServed) {
  lane_.SocketAdded(3);
  EXPECT_TRUE(helper_.added_armed);
  lane_.EnterWait();
  lane_.SocketAdded(4);
  EXPECT_TRUE(helper_.added_armed);
  lane_.LeaveWait();
  EnterPollingMode();
  lane_.SocketAdded(5);
  EXPECT_FALSE(helper_.added_armed);
}

// The helper polls a socket that cannot be armed, until it can be.
TEST_F(LaneTest, SocketsThatCannotBeArmedArePolled) {
  LaneEnd peer;
  Join(&peer);
  EnterPollingMode();
  helper_.refuses = true;
  lane_.DropLease();
  for (int i = 0; i < 3; ++i) {
    const Time until = lane_.RunHelper();
    EXPECT_GT(until, now);
    ASSERT_LE(until, now + 5 * kMillisecond);
    peer.Post();
    now = until;
  }
  lane_.RunHelper();
  peer.lane.RunHelper();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(peer.cq.Poll());
  helper_.refuses = false;
  EXPECT_EQ(lane_.RunHelper(), kNever);
  EXPECT_TRUE(helper_.armed);

  // One more socket that can be armed does not arm the others.
  EnterPollingMode();
  helper_.refuses = true;
  lane_.DropLease();
  helper_.refuses = false;
  lane_.SocketAdded(3);
  lane_.RunHelper();
  EXPECT_TRUE(helper_.armed);

  // The same for a socket that is added while a thread waits.
  lane_.EnterWait();
  helper_.refuses = true;
  lane_.SocketAdded(4);
  for (int i = 0; i < 3; ++i) {
    const Time until = lane_.RunHelper();
    EXPECT_GT(until, now);
    ASSERT_LE(until, now + 5 * kMillisecond);
    now = until;
  }
  helper_.refuses = false;
  lane_.LeaveWait();
  EXPECT_EQ(lane_.RunHelper(), kNever);
  EXPECT_TRUE(helper_.armed);
}

// Sockets that wake the helper for nothing are disarmed for a while, and
// polled.
TEST_F(LaneTest, SpuriouslyReadableSocketsAreDisarmed) {
  LaneEnd peer;
  Join(&peer);
  Time until = kNever;
  int by_socket = 0;
  // Does what a helper thread does while its sockets are always readable.
  const auto run_until = [&](Time end) {
    while (now < end) {
      if (helper_.armed) {
        ++by_socket;
        until = lane_.RunHelper(/*by_socket=*/true);
        now += kMicrosecond;
      } else {
        ASSERT_LT(until, kNever);
        now = std::max(now, until);
        until = lane_.RunHelper();
      }
    }
  };
  run_until(now + 100 * kMillisecond);
  EXPECT_LT(by_socket, 50);
  EXPECT_GT(lane_.counters().socket_rests, 10u);
  for (int i = 0; i < 10; ++i) {
    peer.Post();
    run_until(now + 10 * kMillisecond);
    peer.lane.RunHelper();
    EXPECT_TRUE(peer.cq.Poll());
  }
  // The sockets work again.
  lane_.RunHelper();
  now += 10 * kMillisecond;
  EXPECT_EQ(lane_.RunHelper(), kNever);
  EXPECT_TRUE(helper_.armed);
}

// Packets that other threads receive meanwhile end the row of futile wake-ups.
TEST_F(LaneTest, SocketsWithArrivalsStayArmed) {
  LaneEnd peer;
  Join(&peer);
  for (int i = 0; i < 100; ++i) {
    lane_.RunHelper(/*by_socket=*/true);
    peer.Post();
    lane_.PollOnce(now);
    lane_.RunHelper(/*by_socket=*/true);
  }
  EXPECT_TRUE(helper_.armed);
  EXPECT_EQ(lane_.counters().socket_rests, 0u);
}

TEST_F(LaneTest, ForwardsStraysOfOtherSlots) {
  transport::GroBatch batch;
  batch.source = *wire::IpAddress::Parse("10.0.0.2");
  batch.destination = *wire::IpAddress::Parse("10.0.0.1");
  batch.source_port = 77;
  batch.segment_size = 20;  // BTH, four bytes and ICRC
  // The segments are for slot 7; for the broker's slot 0; for our slot, but for
  // no queue pair; for slot 7, but damaged; and too short.
  std::vector<uint8_t> bytes(4 * 20 + 5);
  const wire::IcrcFlow flow(batch.source, batch.destination, 77,
                            wire::kRoceUdpPort);
  uint16_t id = 0;
  for (const uint32_t qpn : {0x007001, 0x000001, 0x005fff, 0x007002}) {
    const std::span<uint8_t> packet = std::span(bytes).subspan(id * 20, 20);
    wire::Headers headers;
    headers.bth.opcode =
        wire::MakeOpcode(wire::Transport::kRc, wire::Operation::kSendOnly);
    headers.bth.dest_qpn = qpn;
    wire::EmitHeaders(headers, packet.data());
    flow.Store(packet, id++);
  }
  bytes[3 * 20 + 12] ^= 1;
  batch.bytes = bytes;
  port_->arrivals = {&batch, 1};
  EXPECT_EQ(lane_.Progress(), LaneImpl::PollResult::kSomething);
  ASSERT_EQ(slot_.forwarded.size(), 2u);
  EXPECT_EQ(slot_.forwarded[0],
            std::vector<uint8_t>(bytes.begin(), bytes.begin() + 20));
  EXPECT_EQ(slot_.forwarded[1],
            std::vector<uint8_t>(bytes.begin() + 20, bytes.begin() + 40));
  const Lane::Guard guard(lane_);
  const transport::EndpointCounters& counters = lane_.endpoint().counters();
  const auto dropped = [&](transport::Disposition why) {
    return counters.dropped[static_cast<size_t>(why)];
  };
  EXPECT_EQ(dropped(transport::Disposition::kUnknownQp), 3u);
  EXPECT_EQ(dropped(transport::Disposition::kBadIcrc), 1u);
  EXPECT_EQ(dropped(transport::Disposition::kTooShort), 1u);
}

TEST_F(LaneTest, DoesNothingWhenClosed) {
  LaneImpl closed{VirtualClock};
  EXPECT_EQ(closed.Progress(), LaneImpl::PollResult::kNothing);
  closed.DropLease();
  closed.EnterWait();
  EXPECT_FALSE(closed.PollOnce(0));
  closed.LeaveWait();
  EXPECT_EQ(closed.RunHelper(), kNever);
  const Lane::Guard guard(closed);
  closed.Posted(0, {.requests = 1, .bytes = 64, .signaled = 1});
}

// Such packets once waited for space in a ring, and were lost.
TEST_F(LaneTest, LastPacketsOfAQueuePairDoNotWaitForRoom) {
  FakePort other;
  port_->last = &other;
  port_->refuses_flows = true;
  Post();
  EXPECT_EQ(PacketsSent(), 0);
  {
    const Lane::Guard guard(lane_);
    lane_.TransmitLast(*end_.qp, virtual_now);
  }
  EXPECT_EQ(other.packets, std::vector<int>{1});
}

TEST_F(LaneTest, LastPacketsOfAProgramThatEndsDoNotWaitForRoom) {
  FakePort other;
  port_->last = &other;
  port_->refuses_flows = true;
  Post();
  lane_.TransmitAtExit();
  EXPECT_EQ(other.packets, std::vector<int>{1});
  EXPECT_EQ(PacketsSent(), 0);
}

// If the port has refused no flow, it sends them itself.
TEST_F(LaneTest, OtherLastPacketsGoAsBefore) {
  FakePort other;
  port_->last = &other;
  Post();
  {
    const Lane::Guard guard(lane_);
    lane_.TransmitLast(*end_.qp, virtual_now);
  }
  lane_.TransmitAtExit();
  EXPECT_EQ(PacketsSent(), 1);
  EXPECT_TRUE(other.packets.empty());
}

}  // namespace
}  // namespace rxe_user
