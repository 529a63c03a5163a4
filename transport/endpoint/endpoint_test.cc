// Malformed packets, each of which was a bug in some implementation, and
// packets for no queue pair.
#include "transport/endpoint/endpoint.h"

#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "transport/testing/endpoint_fixture.h"
#include "wire/icrc.h"

namespace transport {
namespace {

using enum wire::Operation;
using Bytes = std::vector<uint8_t>;

TEST_F(EndpointTest, EveryLengthOfEveryOpcode) {
  // Includes the 48 bytes with an unknown opcode. The ICRC is right, where
  // there is one, so it hides no other check.
  for (int opcode = 0; opcode < 256; ++opcode) {
    for (size_t bytes = 0; bytes <= 64; ++bytes) {
      // Its own allocation: a sanitizer sees every read beyond the end.
      WirePeer fresh;
      Bytes packet(bytes);
      if (bytes > 0) packet[0] = static_cast<uint8_t>(opcode);
      if (bytes >= 4) packet[2] = packet[3] = 0xff;
      if (bytes >= 8) packet[7] = WirePeer::kQpn;
      if (bytes >= 12) packet[11] = WirePeer::kPsn;
      if (bytes >= 16) Sign(&packet);
      const Disposition disposition = peer.Deliver(packet);
      const wire::OpcodeInfo& info =
          wire::GetOpcodeInfo(static_cast<uint8_t>(opcode));
      if (bytes < 16) {
        EXPECT_EQ(disposition, Disposition::kTooShort);
      } else if (!info.known && !info.reserved) {
        EXPECT_EQ(disposition, Disposition::kUnknownOpcode);
      } else if (bytes < info.header_length + wire::kIcrcSize) {
        EXPECT_EQ(disposition, Disposition::kTooShort);
      } else if (bytes % 4 != 0 || (info.is_response && !info.carries_payload &&
                                    bytes > info.header_length + 4u)) {
        EXPECT_EQ(disposition, Disposition::kBadLength);
      } else {
        EXPECT_EQ(disposition, Disposition::kDelivered);
      }
      if (peer.qp->state() == QpState::kErr) {
        peer.Modify(QpState::kReset);
        peer.Connect();
      }
      peer.Transmit();
    }
  }
}

TEST_F(EndpointTest, UnknownOpcodeOf48Bytes) {
  Bytes packet(48);
  packet[0] = 0x3f;
  packet[7] = WirePeer::kQpn;
  Sign(&packet);
  EXPECT_EQ(peer.Deliver(packet), Disposition::kUnknownOpcode);
  EXPECT_EQ(dropped(Disposition::kUnknownOpcode), 1u);
  EXPECT_EQ(peer.qp->counters().rx_packets, 0u);
}

TEST_F(EndpointTest, PadLargerThanThePayload) {
  for (uint8_t pad = 1; pad <= 3; ++pad) {
    wire::Headers headers = peer.Request(kSendOnly, 100, true);
    Bytes packet = peer.Build(headers);
    packet[1] |= static_cast<uint8_t>(pad << 4);
    Sign(&packet);
    EXPECT_EQ(peer.Deliver(packet), Disposition::kBadHeader);
  }
  EXPECT_EQ(dropped(Disposition::kBadHeader), 3u);
  EXPECT_EQ(peer.Transmit(), "");
}

TEST_F(EndpointTest, OtherTransportVersion) {
  Bytes packet = peer.Build(peer.Request(kSendOnly, 100, true));
  packet[1] |= 1;
  Sign(&packet);
  EXPECT_EQ(peer.Deliver(packet), Disposition::kBadHeader);
}

TEST_F(EndpointTest, LengthNoMultipleOfFour) {
  Bytes packet = peer.Build(peer.Write(kWriteOnly, 100, 0, 8, true), 8);
  for (size_t more = 1; more <= 3; ++more) {
    packet.push_back(0);
    Sign(&packet);
    EXPECT_EQ(peer.Deliver(packet), Disposition::kBadLength);
  }
  EXPECT_EQ(dropped(Disposition::kBadLength), 3u);
  EXPECT_EQ(peer.Transmit(), "");
  EXPECT_EQ(peer.qp->counters().rx_packets, 0u);
  EXPECT_EQ(peer.target->bytes[0], 0);
}

TEST_F(EndpointTest, DamagedPacket) {
  Bytes packet = peer.Build(peer.Write(kWriteOnly, 100, 0, 8, true), 8);
  packet[31] ^= 4;
  peer.Deliver(peer.Write(kWriteOnly, 100, 0, 0));  // sets the known IP ID
  EXPECT_EQ(peer.Deliver(packet), Disposition::kBadIcrc);
  EXPECT_EQ(dropped(Disposition::kBadIcrc), 1u);
  EXPECT_EQ(peer.target->bytes[0], 0);
}

// Nobody but a connected peer gets an answer, so packets with forged sources
// cannot direct traffic at a victim.
TEST_F(EndpointTest, UnknownSourcesAreNeverAnswered) {
  peer.PostReceive(7, {8});
  for (const char* address : {"10.0.0.3", "127.0.0.1", "fd00::2"}) {
    peer.datagram.source = *wire::IpAddress::Parse(address);
    if (!peer.datagram.source.is_v4()) {
      peer.datagram.destination = *wire::IpAddress::Parse("fd00::1");
    }
    for (const uint32_t qpn : {WirePeer::kQpn, 0x12u, 0u, 1u, 0xffffffu}) {
      for (int opcode = 0; opcode < 256; ++opcode) {
        for (uint32_t psn = 98; psn < 103; ++psn) {
          wire::Headers headers = peer.Write(kWriteOnly, psn, 0, 8, true);
          headers.bth.opcode = static_cast<uint8_t>(opcode);
          headers.bth.dest_qpn = qpn;
          peer.Deliver(headers);
          peer.Deliver(headers, 8);
        }
      }
    }
  }
  EXPECT_EQ(peer.Transmit(), "");
  peer.now += kSecond;
  peer.endpoint.OnTimer(peer.now);
  EXPECT_EQ(peer.Transmit(), "");
  EXPECT_EQ(peer.endpoint.counters().tx_datagrams, 0u);
  EXPECT_EQ(peer.TakeReceives(), "");
  EXPECT_EQ(peer.qp->state(), QpState::kRts);
}

TEST_F(EndpointTest, UnknownQueuePair) {
  wire::Headers headers = peer.Request(kSendOnly, 100, true);
  headers.bth.dest_qpn = 1;
  EXPECT_EQ(peer.Deliver(headers), Disposition::kUnknownQp);
  EXPECT_EQ(dropped(Disposition::kUnknownQp), 1u);
  // A damaged packet is dropped as such, whatever its queue pair.
  Bytes packet = peer.Build(headers);
  packet.back() ^= 0xff;
  packet[packet.size() - 2] ^= 0x3f;
  peer.Deliver(packet);
  EXPECT_EQ(dropped(Disposition::kUnknownQp) + dropped(Disposition::kBadIcrc),
            2u);
  EXPECT_EQ(peer.endpoint.Find(1), nullptr);
  EXPECT_EQ(peer.endpoint.Find(WirePeer::kQpn), peer.qp.get());
}

// Every packet is counted once, and many reach the queue pair.
TEST_F(EndpointTest, RandomBytes) {
  constexpr int kPackets = 20000;
  std::array<uint64_t, kDropKinds + 1> found{};  // by Disposition
  std::mt19937 random(1);
  for (int i = 0; i < kPackets; ++i) {
    Bytes packet(random() % 400);
    for (uint8_t& byte : packet) byte = static_cast<uint8_t>(random());
    if (packet.size() >= 16) {
      packet[0] &= 0x1f;
      packet[1] = static_cast<uint8_t>(packet[1] & 0xb0);
      packet[2] = packet[3] = 0xff;
      packet[5] = packet[6] = 0;
      packet[7] = WirePeer::kQpn;
      packet[9] = packet[10] = 0;
      packet[11] = static_cast<uint8_t>(96 + packet[11] % 8);
      Sign(&packet);
    }
    ++found[static_cast<size_t>(peer.Deliver(packet))];
    if (peer.qp->state() == QpState::kErr) {
      peer.Transmit();
      peer.Modify(QpState::kReset);
      peer.Connect();
    }
    if (i % 7 == 0) peer.Transmit();
  }
  EXPECT_EQ(peer.endpoint.counters().rx_datagrams, uint64_t{kPackets});
  for (size_t kind = 0; kind < kDropKinds; ++kind) {
    EXPECT_EQ(dropped(static_cast<Disposition>(kind)), found[kind]) << kind;
  }
  EXPECT_GT(found[static_cast<size_t>(Disposition::kDelivered)], 100u);
}

}  // namespace
}  // namespace transport
