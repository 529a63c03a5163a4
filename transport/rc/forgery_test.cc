// Packets that an attacker sends in the peer's name: from its address, with a
// good ICRC and the right queue pair number, but not from its UDP port, or
// without knowing which PSNs are in flight. They must have no effect.
#include <algorithm>
#include <string>

#include "gtest/gtest.h"
#include "transport/endpoint/packet_arena.h"
#include "transport/qp/peer_port.h"
#include "transport/testing/requester_peer.h"
#include "transport/testing/responder_fixture.h"

namespace transport {
namespace {

using enum wire::Operation;

constexpr uint16_t kPeerPort = 0xc123;
constexpr uint16_t kForger = 0x8888;

// --- The responder.

class ForgedRequestTest : public ResponderTest {
 protected:
  const QpCounters& counters() const { return peer.qp->counters(); }
  template <typename Do>
  void FromPort(uint16_t port, Do deliver) {
    peer.datagram.source_port = port;
    deliver();
    peer.datagram.source_port = kPeerPort;
  }
  // One packet of the peer: its port is known from here on.
  void PinPort() {
    peer.Deliver(peer.Write(kWriteOnly, 100, 0, 0, true));
    EXPECT_EQ(peer.Transmit(), "ACK 100 msn 1");
  }
  void ExpectPeerContinues(uint32_t psn, uint32_t msn) {
    peer.Deliver(peer.Write(kWriteOnly, psn, 64, 4, true), 4);
    EXPECT_EQ(peer.Transmit(),
              "ACK " + std::to_string(psn) + " msn " + std::to_string(msn));
    EXPECT_EQ(Target(64, 4), WirePeer::Pattern(4));
    EXPECT_EQ(peer.qp->state(), QpState::kRts);
  }
  void Wait(Time time) {
    peer.now += time;
    peer.endpoint.OnTimer(peer.now);
  }
};

TEST_F(ForgedRequestTest, AnotherPortDoesNothing) {
  PinPort();
  peer.PostReceive(7, {8});
  FromPort(kForger, [&] {
    for (uint32_t psn = 90; psn < 200; ++psn) {
      peer.Deliver(peer.Write(kWriteOnly, psn, 0, 4, true), 4);
      peer.Deliver(peer.Request(kSendOnly, psn, true), 4);
      peer.Deliver(peer.Request(kSendLast, psn, true), 4);  // invalid
      peer.Deliver(peer.Request(kReserved18, psn, true), 4);
      peer.Deliver(peer.Read(psn, 0, 8));
      peer.Deliver(peer.Read(psn, 1 << 20, 8));  // no access
      peer.Deliver(peer.Atomic(kFetchAdd, psn, 0, 1));
    }
  });
  EXPECT_EQ(counters().dropped_port, 770u);
  EXPECT_EQ(counters().rx_packets, 1u);
  EXPECT_EQ(peer.Transmit(), "");
  EXPECT_EQ(peer.TakeReceives(), "");
  EXPECT_TRUE(Untouched());
  ExpectPeerContinues(101, 2);
}

// A peer that continues from another port, as after a failover.
TEST_F(ForgedRequestTest, SilentPeerMayChangeItsPort) {
  PinPort();
  const auto next = [&] {
    peer.Deliver(peer.Write(kWriteOnly, 101, 0, 0, true));
  };
  Wait(PeerPort::kSilence - 1);
  FromPort(kForger, next);
  Wait(1);
  FromPort(kForger, next);  // this begins its claim to be the peer
  Wait(PeerPort::kSilence - 1);
  FromPort(kForger, next);
  EXPECT_EQ(peer.Transmit(), "");
  Wait(1);
  // A packet from a third port in between begins a claim of that port.
  FromPort(kForger + 1, next);
  EXPECT_EQ(peer.Transmit(), "");
  FromPort(kForger, next);
  Wait(PeerPort::kSilence);
  FromPort(kForger, next);
  EXPECT_EQ(peer.Transmit(), "ACK 101 msn 2");
  // From then on that is the peer's port.
  peer.Deliver(peer.Write(kWriteOnly, 102, 0, 0, true));
  EXPECT_EQ(peer.Transmit(), "");
  EXPECT_EQ(counters().dropped_port, 6u);
}

// A receiver that was not scheduled for long finds in its socket what arrived
// meanwhile: its peer was not silent, whichever packet comes first.
TEST_F(ForgedRequestTest, AReceiverThatWasAwayTrustsThePeer) {
  PinPort();
  for (uint32_t psn = 101; psn < 111; ++psn) {
    Wait(3 * PeerPort::kSilence);
    FromPort(kForger, [&] {
      peer.Deliver(peer.Write(kWriteOnly, psn, 0, 4, true), 4, 0x66);
      peer.Deliver(peer.Read(psn, 1 << 20, 8));  // no access
    });
    ExpectPeerContinues(psn, psn - 99);
  }
  EXPECT_TRUE(Target(0, 4) == Bytes(4));
  EXPECT_EQ(counters().dropped_port, 20u);
}

// While the peer is idle, an attacker tries one PSN after the other: each wrong
// one makes the next one wait longer.
TEST_F(ForgedRequestTest, GuessesAreFew) {
  PinPort();
  const Time start = peer.now;
  FromPort(kForger, [&] {
    // The right one always comes too soon after a wrong one.
    for (uint32_t psn = 102; psn < 102 + 100'000; ++psn) {
      peer.Deliver(peer.Write(kWriteOnly, psn, 0, 0, true));
      peer.Deliver(peer.Write(kWriteOnly, 101, 0, 0, true));
      Wait(kMillisecond);
    }
  });
  EXPECT_EQ(peer.now - start, 100 * kSecond);
  EXPECT_EQ(counters().dropped_port, 200'000u);
  EXPECT_EQ(peer.Transmit(), "");
  // The peer itself is accepted at once, and resets the wait.
  ExpectPeerContinues(101, 2);
  for (const char* const answer : {"", "ACK 102 msn 3"}) {
    Wait(PeerPort::kSilence);
    FromPort(kForger,
             [&] { peer.Deliver(peer.Write(kWriteOnly, 102, 0, 0, true)); });
    EXPECT_EQ(peer.Transmit(), answer);
  }
}

TEST_F(ForgedRequestTest, NewConnectionMayHaveAnotherPort) {
  PinPort();
  ASSERT_EQ(peer.Modify(QpState::kReset), 0);
  peer.Connect();
  FromPort(kForger,
           [&] { peer.Deliver(peer.Write(kWriteOnly, 100, 0, 0, true)); });
  EXPECT_EQ(peer.Transmit(), "ACK 100 msn 1");
}

// --- Buffered packets.

// Otherwise a forged packet would be executed in place of the peer's own, and
// acknowledged before that was sent.
TEST_F(ForgedRequestTest, AheadOfThePeerNothingIsBuffered) {
  PinPort();
  FromPort(kForger, [&] {
    for (uint32_t psn = 101; psn < 400; ++psn) {
      peer.Deliver(peer.Write(kWriteOnly, psn, 0, 4), 4, 0x66);
    }
  });
  EXPECT_EQ(peer.endpoint.arena_pool()->in_use(), 0u);
  ExpectPeerContinues(101, 2);
  EXPECT_EQ(Target(0, 4), Bytes(4));
}

TEST_F(ForgedRequestTest, BeforeThePeersFirstPacketNothingIsBuffered) {
  for (uint16_t port : {kForger, kPeerPort, kForger}) {
    FromPort(port,
             [&] { peer.Deliver(peer.Write(kWriteOnly, 101, 0, 4), 4, 0x66); });
  }
  EXPECT_EQ(peer.Transmit(), "NAK sequence 100 msn 0");
  peer.Deliver(peer.Write(kWriteOnly, 100, 0, 0, true));
  EXPECT_EQ(peer.Transmit(), "ACK 100 msn 1");
  EXPECT_EQ(peer.endpoint.arena_pool()->in_use(), 0u);
  ExpectPeerContinues(101, 2);
  EXPECT_EQ(Target(0, 4), Bytes(4));
}

// If the port is forged as well, the peer's own packet arrives while the forged
// one is buffered: neither is executed.
TEST_F(ForgedRequestTest, TwoPacketsWithOnePsn) {
  PinPort();
  peer.Deliver(peer.Write(kWriteOnly, 102, 0, 4), 4, 0x66);
  peer.Deliver(peer.Write(kWriteOnly, 102, 0, 4), 4, 1);
  EXPECT_EQ(peer.Transmit(), "NAK sequence 101 msn 1");
  ExpectPeerContinues(101, 2);
  EXPECT_EQ(Target(0, 4), Bytes(4));
  EXPECT_EQ(counters().dropped_conflict, 1u);
  peer.Deliver(peer.Write(kWriteOnly, 102, 0, 4, true), 4, 1);
  EXPECT_EQ(peer.Transmit(), "ACK 102 msn 3");
  EXPECT_EQ(Target(0, 4), WirePeer::Pattern(4));
}

// No peer has that much in flight.
TEST_F(ForgedRequestTest, FarAheadNothingIsBuffered) {
  PinPort();
  peer.Deliver(peer.Write(kWriteOnly, 101 + 4096, 0, 4), 4);
  EXPECT_EQ(peer.endpoint.arena_pool()->in_use(), 0u);
  EXPECT_EQ(peer.Transmit(), "NAK sequence 101 msn 1");
  peer.Deliver(peer.Write(kWriteOnly, 100 + 4096, 0, 4), 4);
  EXPECT_EQ(peer.endpoint.arena_pool()->in_use(), 1u);
}

TEST_F(ForgedRequestTest, FurtherAheadNothingIsReported) {
  PinPort();
  peer.datagram.traffic_class = 3;  // CE
  peer.Deliver(peer.Write(kWriteOnly, 101 + 65536, 0, 4, true), 4);
  peer.datagram.traffic_class = 0;
  EXPECT_EQ(peer.Transmit(), "");
  EXPECT_EQ(counters().dropped_window, 1u);
  EXPECT_EQ(counters().ecn_marked, 0u);
  EXPECT_EQ(peer.endpoint.NextTimeout(), kNever);
  ExpectPeerContinues(101, 2);
}

// Packets that are buffered beyond a gap take memory that others need.
TEST_F(ForgedRequestTest, NothingIsBufferedForEver) {
  PinPort();
  for (uint32_t psn = 102; psn < 112; ++psn) {
    peer.Deliver(peer.Write(kWriteOnly, psn, 0, 4), 4);
    Wait(200 * kMillisecond);
  }
  EXPECT_EQ(peer.Transmit(), "NAK sequence 101 msn 1");
  EXPECT_EQ(peer.endpoint.arena_pool()->in_use(), 1u);
  Wait(50 * kMillisecond);
  EXPECT_EQ(peer.endpoint.arena_pool()->in_use(), 0u);
  EXPECT_EQ(counters().dropped_held, 10u);
  EXPECT_EQ(peer.endpoint.NextTimeout(), kNever);
  EXPECT_EQ(peer.Transmit(), "");
  ExpectPeerContinues(101, 2);
  // The peer sends them again.
  ExpectPeerContinues(102, 3);
}

TEST_F(ForgedRequestTest, NothingIsBufferedForEverBehindAnRnrNak) {
  PinPort();
  peer.Deliver(peer.Request(kSendOnly, 102, true), 8);
  peer.Deliver(peer.Write(kWriteOnly, 103, 0, 4), 4);
  peer.Transmit();
  peer.Deliver(peer.Write(kWriteOnly, 101, 0, 0, true));
  EXPECT_EQ(peer.Transmit(), "RNR 12 102 msn 2");
  EXPECT_EQ(peer.endpoint.arena_pool()->in_use(), 1u);
  Wait(250 * kMillisecond);
  EXPECT_EQ(peer.endpoint.arena_pool()->in_use(), 0u);
  peer.PostReceive(7, {8});
  peer.Deliver(peer.Request(kSendOnly, 102, true), 8);
  EXPECT_EQ(peer.TakeReceives(), "7 ok 8");
  EXPECT_EQ(peer.Transmit(), "ACK 102 msn 3");
}

// --- The requester.

class ForgedResponseTest : public ::testing::Test {
 protected:
  ForgedResponseTest() {
    peer.Connect();
    peer.Send(1, 1);
    peer.Transmit();
    peer.Ack(100);  // its port is known from here on
    EXPECT_EQ(peer.Completions(), "1 ok");
  }
  // Everything that could do harm, at PSNs around those in flight.
  void Forge() {
    for (uint32_t psn = 95; psn < 120; ++psn) {
      peer.Ack(psn);
      peer.Ack(psn, /*credit_code=*/0);
      peer.Nak(psn);
      for (const wire::NakCode code :
           {wire::NakCode::kInvalidRequest, wire::NakCode::kRemoteAccess,
            wire::NakCode::kRemoteOperational, wire::NakCode::kInvalidRd}) {
        peer.Nak(psn, code);
      }
      peer.RnrNak(psn, 1);
      peer.ReadResponse(kReadResponseOnly, psn, 8, 0x66);
      peer.ReadResponse(kReadResponseMiddle, psn, 256, 0x66);
      peer.AtomicAck(psn, 666);
    }
    wire::Headers cnp;
    cnp.bth.opcode = wire::kOpcodeCnp;
    cnp.bth.dest_qpn = RequesterPeer::kQpn;
    peer.Deliver(cnp, wire::kCnpPayloadSize);
  }
  void PostEachKind() {
    peer.Send(2, 1);      // 101
    peer.Read(3, 8);      // 102
    peer.FetchAdd(4, 1);  // 103
    peer.Write(5, 1000);  // 104 to 107
    peer.Transmit();
  }

  RequesterPeer peer;
};

TEST_F(ForgedResponseTest, AnotherPortDoesNothing) {
  PostEachKind();
  const uint64_t window = peer.path().window();
  const Time timer = peer.NextTimer();
  peer.source_port = kForger;
  Forge();
  EXPECT_EQ(peer.Completions(), "");
  EXPECT_EQ(peer.Transmit(), "");
  EXPECT_EQ(peer.NextTimer(), timer);
  EXPECT_EQ(peer.path().window(), window);
  EXPECT_EQ(peer.qp->counters().dropped_port, 25u * 11 + 1);
  peer.source_port = kPeerPort;
  peer.Ack(101);
  peer.ReadResponse(kReadResponseOnly, 102, 8);
  peer.AtomicAck(103, 5);
  peer.Ack(107);
  EXPECT_EQ(peer.Completions(), "2 ok; 3 ok 8; 4 ok 8; 5 ok");
}

// While the peer is silent an attacker may guess, but nothing is outstanding.
TEST_F(ForgedResponseTest, NothingIsOutstanding) {
  peer.source_port = kForger;
  for (int i = 0; i < 100; ++i) {
    peer.At((i + 1) * kSecond);
    Forge();
  }
  EXPECT_EQ(peer.qp->state(), QpState::kRts);
  peer.source_port = kPeerPort;
  peer.Send(2, 1);
  peer.Transmit();
  peer.Ack(101);
  EXPECT_EQ(peer.Completions(), "2 ok");
}

TEST_F(ForgedResponseTest, AReceiverThatWasAwayTrustsThePeer) {
  for (uint32_t i = 1; i <= 10; ++i) {
    peer.Send(1 + i, 1);
    peer.Transmit();
    peer.now += 3 * PeerPort::kSilence;
    peer.source_port = kForger;
    peer.Nak(100 + i, wire::NakCode::kRemoteAccess);
    peer.Ack(100 + i);
    EXPECT_EQ(peer.Completions(), "");
    peer.source_port = kPeerPort;
    peer.Ack(100 + i);
    EXPECT_EQ(peer.Completions(), std::to_string(1 + i) + " ok");
  }
}

TEST_F(ForgedResponseTest, SilentPeerMayChangeItsPort) {
  peer.Send(2, 1);
  peer.Transmit();
  peer.source_port = kForger;
  for (const char* const completions : {"", "2 ok"}) {
    peer.now += PeerPort::kSilence;
    peer.Ack(101);
    EXPECT_EQ(peer.Completions(), completions);
  }
  peer.Send(3, 1);
  peer.Transmit();
  peer.source_port = kPeerPort;
  peer.Ack(102);
  EXPECT_EQ(peer.Completions(), "");
}

// Syndromes that are reserved, in packets that are correct otherwise and name
// PSNs in flight. Their meaning is unknown, so they must have no effect.
TEST_F(ForgedResponseTest, ReservedSyndromesDoNothing) {
  PostEachKind();
  const Time timer = peer.NextTimer();
  for (const wire::Operation operation :
       {kAcknowledge, kReadResponseOnly, kAtomicAcknowledge}) {
    for (uint32_t syndrome = 0x40; syndrome < 0x80; ++syndrome) {
      if (operation == kAcknowledge && syndrome >= 0x60 && syndrome <= 0x64) {
        continue;
      }
      for (uint32_t psn = 101; psn <= 107; ++psn) {
        EXPECT_EQ(
            peer.Acknowledge(operation, psn, static_cast<uint8_t>(syndrome)),
            Disposition::kBadSyndrome);
      }
    }
  }
  EXPECT_EQ(peer.Completions(), "");
  EXPECT_EQ(peer.Transmit(), "");
  EXPECT_EQ(peer.NextTimer(), timer);
  peer.Ack(101);
  peer.ReadResponse(kReadResponseOnly, 102, 8);
  peer.AtomicAck(103, 5);
  peer.Ack(107);
  EXPECT_EQ(peer.Completions(), "2 ok; 3 ok 8; 4 ok 8; 5 ok");
}

TEST_F(ForgedResponseTest, AcknowledgementsWithPayloadDoNothing) {
  PostEachKind();
  for (const wire::Operation operation : {kAcknowledge, kAtomicAcknowledge}) {
    for (const size_t payload : {1, 4, 256}) {
      EXPECT_EQ(peer.Acknowledge(operation, 103, wire::MakeAckSyndrome(0x1f),
                                 payload),
                Disposition::kBadLength);
    }
  }
  EXPECT_EQ(peer.Completions(), "");
  EXPECT_EQ(peer.Transmit(), "");
}

// From the right port, but with PSNs that were answered, or never sent.
TEST_F(ForgedResponseTest, PsnsThatAreNotInFlight) {
  peer.Send(2, 1);
  peer.Transmit();
  const Time timer = peer.NextTimer();
  for (uint32_t psn = 0; psn < 0x1000000; psn += psn % 4096 == 100 ? 2 : 1) {
    if (psn == 101) continue;
    if (psn > 2000 && psn % 256 != 0) continue;
    peer.Nak(psn);
    peer.Nak(psn, wire::NakCode::kRemoteAccess);
    peer.RnrNak(psn, 1);
    peer.ReadResponse(kReadResponseOnly, psn, 1);
  }
  EXPECT_EQ(peer.Transmit(), "");
  EXPECT_EQ(peer.NextTimer(), timer);
  EXPECT_EQ(peer.qp->counters().sequence_naks_received, 0u);
  EXPECT_EQ(peer.qp->counters().fatal_naks_received, 0u);
  peer.Ack(101);
  EXPECT_EQ(peer.Completions(), "2 ok");
}

}  // namespace
}  // namespace transport
