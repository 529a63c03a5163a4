#include "transport/endpoint/endpoint.h"

#include <algorithm>
#include <array>
#include <map>
#include <random>

#include "gtest/gtest.h"
#include "transport/endpoint/endpoint_link.h"
#include "transport/endpoint/transmit_scheduler.h"
#include "transport/testing/wire_peer.h"
#include "wire/aeth.h"
#include "wire/icrc.h"

namespace transport {
namespace {

using enum wire::Operation;
using Bytes = std::vector<uint8_t>;

class EndpointTest : public ::testing::Test {
 protected:
  EndpointTest() { peer.Connect(); }
  uint64_t dropped(Disposition why) const {
    return peer.endpoint.counters().dropped[static_cast<size_t>(why)];
  }
  void Sign(Bytes* packet, uint16_t ip_id = 0) const {
    wire::IcrcFlow(peer.datagram.source, peer.datagram.destination,
                   peer.datagram.source_port, wire::kRoceUdpPort)
        .Store(*packet, ip_id);
  }
  WirePeer peer;
};

// --- Malformed packets. Each was a bug in some implementation.

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

// Every packet is counted once, and many come as far as the queue pair.
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

// --- IP IDs.

TEST_F(EndpointTest, CountingIpIds) {
  // A peer with one counter for all destinations.
  uint16_t id = 0xfff0;
  for (uint32_t psn = 100; psn < 150; ++psn) {
    Bytes packet = peer.Build(peer.Write(kWriteOnly, psn, 0, 4), 4);
    Sign(&packet, id);
    EXPECT_EQ(peer.Deliver(packet), Disposition::kDelivered);
    id = static_cast<uint16_t>(id + 7);
  }
  // A distant ID is rejected at once, and accepted after silence.
  Bytes packet = peer.Build(peer.Write(kWriteOnly, 150, 0, 4, true), 4);
  Sign(&packet, static_cast<uint16_t>(id + 0x7000));
  EXPECT_EQ(peer.Deliver(packet), Disposition::kBadIcrc);
  peer.now += 10 * kMillisecond;
  EXPECT_EQ(peer.Deliver(packet), Disposition::kDelivered);
  EXPECT_EQ(peer.Transmit(), "ACK 150 msn 51");
}

TEST_F(EndpointTest, ReorderedByAWholeBurst) {
  std::vector<Bytes> packets;
  for (uint16_t i = 0; i < 500; ++i) {
    packets.push_back(peer.Build(peer.Write(kWriteOnly, 100 + i, 0, 4), 4));
    Sign(&packets.back(), static_cast<uint16_t>(20000 + i));
  }
  EXPECT_EQ(peer.Deliver(packets[0]), Disposition::kDelivered);
  EXPECT_EQ(peer.Deliver(packets[499]), Disposition::kDelivered);
  for (int i = 1; i < 499; ++i) {
    ASSERT_EQ(peer.Deliver(packets[i]), Disposition::kDelivered) << i;
  }
}

TEST_F(EndpointTest, SegmentIndex) {
  for (uint16_t i = 0; i < 40; ++i) {
    Bytes packet = peer.Build(peer.Write(kWriteOnly, 100 + i, 0, 4), 4);
    Sign(&packet, i);
    peer.datagram.segment_index = i;
    EXPECT_EQ(peer.Deliver(packet), Disposition::kDelivered);
  }
  EXPECT_EQ(peer.qp->counters().rx_packets, 40u);
}

TEST_F(EndpointTest, AnotherSourceDoesNotMoveTheIpId) {
  Bytes packet = peer.Build(peer.Write(kWriteOnly, 100, 0, 4), 4);
  Sign(&packet, 5000);
  EXPECT_EQ(peer.Deliver(packet), Disposition::kDelivered);
  const wire::IpAddress right = peer.datagram.source;
  peer.datagram.source = *wire::IpAddress::Parse("10.0.0.66");
  Sign(&packet, 40000);
  EXPECT_EQ(peer.Deliver(packet), Disposition::kDelivered);
  peer.datagram.source = right;
  packet = peer.Build(peer.Write(kWriteOnly, 101, 0, 4), 4);
  Sign(&packet, 40001);
  EXPECT_EQ(peer.Deliver(packet), Disposition::kBadIcrc);
  Sign(&packet, 5001);
  EXPECT_EQ(peer.Deliver(packet), Disposition::kDelivered);
}

// A sender with the peer's address, even with its port, that does not know the
// next PSN does not move it either.
TEST_F(EndpointTest, UnexpectedPacketsDoNotMoveTheIpId) {
  const auto deliver = [this](const wire::Headers& headers, uint16_t ip_id) {
    Bytes packet = peer.Build(headers, 4);
    Sign(&packet, ip_id);
    return peer.Deliver(packet);
  };
  uint32_t psn = 100;
  uint16_t id = 5000;
  const auto peer_goes_on = [&] {
    EXPECT_EQ(deliver(peer.Write(kWriteOnly, psn++, 0, 4), id++),
              Disposition::kDelivered);
  };
  peer_goes_on();
  const uint16_t right = peer.datagram.source_port;
  for (const uint16_t ip_id : {20000, 40000, 60000}) {
    // From another port, which has no effect on the peer's state.
    peer.datagram.source_port = 0x8888;
    EXPECT_EQ(deliver(peer.Write(kWriteOnly, psn, 0, 4), ip_id),
              Disposition::kDelivered);
    peer.datagram.source_port = right;
    peer_goes_on();
    // From the right port, but outside the PSN window. Their IDs are near
    // enough to be good, and would move the ID window.
    for (uint16_t step = 1; step <= 40; ++step) {
      const auto near = static_cast<uint16_t>(id + 900);
      deliver(peer.Write(kWriteOnly, psn + 0x100000, 0, 4), near);
      deliver(peer.Write(kWriteOnly, psn - 0x100000, 0, 4), near);
      deliver(peer.Request(kAcknowledge, 7000), near);
      wire::Headers member = peer.Write(kWriteOnly, psn, 0, 4);
      member.bth.pkey = 0x8001;
      deliver(member, near);
      peer.now += kMicrosecond;
    }
    // 1024 IDs, and 16 for each microsecond of silence.
    EXPECT_EQ(deliver(peer.Write(kWriteOnly, psn, 0, 4),
                      static_cast<uint16_t>(id + 1024 + 40 * 16 + 10)),
              Disposition::kBadIcrc);
    peer_goes_on();
  }
  EXPECT_EQ(peer.qp->counters().dropped_port, 3u);
  EXPECT_EQ(peer.qp->counters().dropped_pkey, 120u);
}

// A peer with unordered IP IDs.
class RandomIpIdTest : public EndpointTest {
 protected:
  Disposition DeliverSigned(const wire::Headers& headers, uint16_t ip_id,
                            size_t payload = 4) {
    Bytes packet = peer.Build(headers, payload);
    Sign(&packet, ip_id);
    return peer.Deliver(packet);
  }
  Disposition DeliverRandom(const wire::Headers& headers, size_t payload = 4) {
    return DeliverSigned(headers, static_cast<uint16_t>(random_()), payload);
  }
  // Sends the peer's next request until it is accepted. Returns the number of
  // rejections.
  int Go() {
    int refused = 0;
    while (DeliverRandom(peer.Write(kWriteOnly, psn_, 0, 4)) !=
           Disposition::kDelivered) {
      EXPECT_LT(++refused, 100);
      peer.now += kMicrosecond;
    }
    ++psn_;
    return refused;
  }
  // Far from the last few IDs, and from 1000: rejected by itself.
  uint16_t Far() { return far_ = far_ == 60000 ? 12000 : far_ + 12000; }
  // A packet that is bad with every ID.
  Disposition DeliverDamaged(uint32_t psn) {
    Bytes packet = peer.Build(peer.Write(kWriteOnly, psn, 0, 4), 4);
    packet.back() ^= 0x5a;
    return peer.Deliver(packet);
  }
  std::mt19937 random_{4};
  uint32_t psn_ = 100;
  uint16_t far_ = 60000;
};

TEST_F(RandomIpIdTest, AllButTheFirstFewAreAccepted) {
  int refused = 0;
  for (int i = 0; i < 20; ++i) refused += Go();
  EXPECT_GE(refused, 1);
  EXPECT_LE(refused, 2);
  for (int i = 0; i < 5000; ++i) {
    ASSERT_EQ(Go(), 0) << i;
    peer.now += (i % 3) * kMicrosecond;
  }
}

// With more time between packets, more IDs are accepted and fewer are far.
TEST_F(RandomIpIdTest, AlsoWithTimeBetweenPackets) {
  for (const Time apart : {100 * kMicrosecond, kMillisecond, 2 * kMillisecond,
                           3 * kMillisecond, 6 * kMillisecond}) {
    int refused = 0;
    for (int i = 0; i < 100; ++i) {
      refused += Go();
      peer.now += apart;
    }
    EXPECT_LE(refused, 6) << apart;
    for (int i = 0; i < 200; ++i) {
      ASSERT_EQ(Go(), 0) << apart << ", " << i;
      peer.now += apart;
    }
    peer.Modify(QpState::kReset);
    peer.Connect();
    psn_ = 100;
  }
}

// A peer sends a window of packets without waiting for each.
TEST_F(RandomIpIdTest, PacketsBeyondTheFirstGapCount) {
  int refused = 0;
  for (uint32_t psn = 100; psn < 1100; ++psn) {
    if (DeliverRandom(peer.Write(kWriteOnly, psn, 0, 4)) !=
        Disposition::kDelivered) {
      ++refused;
      EXPECT_LT(psn, 110u);
    }
  }
  EXPECT_GE(refused, 1);
  EXPECT_LE(refused, 2);
}

TEST_F(RandomIpIdTest, ResponsesCount) {
  const Sge sge = {peer.target->va, 8, peer.target->lkey};
  SendRequest request;
  request.opcode = SendOpcode::kRdmaWrite;
  request.flags = kSendSignaled;  // so that its slot is freed
  request.sges = {&sge, 1};
  request.rkey = 1;
  int refused = 0;
  for (uint32_t psn = 5000; psn < 6000; ++psn) {
    ASSERT_EQ(peer.qp->PostSend(request, peer.now), 0);
    peer.Transmit();
    wire::Headers ack = peer.Request(kAcknowledge, psn);
    ack.aeth = {wire::MakeAckSyndrome(wire::kCreditNone), psn - 4999};
    while (DeliverRandom(ack, 0) != Disposition::kDelivered) {
      EXPECT_LT(psn, 5010u);
      ASSERT_LE(++refused, 2);
    }
  }
  EXPECT_GE(refused, 1);
}

// Accepting any ID makes the ICRC a 16-bit check; a damaged packet restores the
// strict check.
TEST_F(RandomIpIdTest, DamageRestoresTheCheck) {
  for (int i = 0; i < 20; ++i) Go();
  const auto next = [&] { return peer.Write(kWriteOnly, psn_, 0, 4); };
  // A packet outside the PSN window changes nothing.
  EXPECT_EQ(DeliverDamaged(psn_ - 1), Disposition::kBadIcrc);
  EXPECT_EQ(DeliverDamaged(psn_ + 0x100000), Disposition::kBadIcrc);
  EXPECT_EQ(DeliverSigned(next(), Far()), Disposition::kDelivered);
  ++psn_;
  EXPECT_EQ(DeliverDamaged(psn_), Disposition::kBadIcrc);
  EXPECT_EQ(DeliverSigned(next(), Far()), Disposition::kBadIcrc);
  EXPECT_EQ(DeliverSigned(next(), Far()), Disposition::kBadIcrc);
  EXPECT_EQ(DeliverSigned(next(), Far()), Disposition::kDelivered);
  ++psn_;
  EXPECT_EQ(DeliverSigned(next(), Far()), Disposition::kDelivered);
}

// A peer that counts, and once restarted its counter.
TEST_F(RandomIpIdTest, CountingIdsRestoreTheCheck) {
  for (int i = 0; i < 20; ++i) Go();
  for (uint16_t id = 1000; id < 1009; ++id) {
    EXPECT_EQ(DeliverSigned(peer.Write(kWriteOnly, psn_++, 0, 4), id),
              Disposition::kDelivered);
  }
  const wire::Headers next = peer.Write(kWriteOnly, psn_, 0, 4);
  EXPECT_EQ(DeliverSigned(next, 30000), Disposition::kBadIcrc);
  EXPECT_EQ(DeliverSigned(next, 60000), Disposition::kBadIcrc);
  // A near ID resets the count of far ones.
  EXPECT_EQ(DeliverSigned(next, 1009), Disposition::kDelivered);
  const wire::Headers after = peer.Write(kWriteOnly, psn_ + 1, 0, 4);
  EXPECT_EQ(DeliverSigned(after, 30000), Disposition::kBadIcrc);
  EXPECT_EQ(DeliverSigned(after, 60000), Disposition::kBadIcrc);
  EXPECT_EQ(DeliverSigned(after, 30000), Disposition::kDelivered);
}

TEST_F(RandomIpIdTest, OnlyPacketsWithinTheWindowCount) {
  EXPECT_EQ(DeliverSigned(peer.Write(kWriteOnly, 100, 0, 4), 1000),
            Disposition::kDelivered);
  const auto forge = [&] {
    for (int i = 0; i < 10; ++i) {
      for (const uint32_t psn : {100u, 50u, 101u + 65536, 0x800000u}) {
        EXPECT_EQ(DeliverSigned(peer.Write(kWriteOnly, psn, 0, 4), Far()),
                  Disposition::kBadIcrc);
      }
      EXPECT_EQ(DeliverSigned(peer.Request(kAcknowledge, 5000), Far(), 0),
                Disposition::kBadIcrc);
      wire::Headers uc = peer.Write(kWriteOnly, 101, 0, 4);
      uc.bth.opcode = wire::MakeOpcode(wire::Transport::kUc, kWriteOnly);
      EXPECT_EQ(DeliverSigned(uc, Far()), Disposition::kBadIcrc);
    }
  };
  forge();
  const wire::Headers next = peer.Write(kWriteOnly, 101, 0, 4);
  EXPECT_EQ(DeliverSigned(next, Far()), Disposition::kBadIcrc);
  forge();
  EXPECT_EQ(DeliverSigned(next, Far()), Disposition::kBadIcrc);
  // Packets outside the window do not reset the count either.
  forge();
  EXPECT_EQ(DeliverSigned(next, Far()), Disposition::kDelivered);
}

// One in 2^16 is good with some ID, and three of those in a row would count.
TEST_F(RandomIpIdTest, RandomDamageIsNotAccepted) {
  EXPECT_EQ(DeliverSigned(peer.Write(kWriteOnly, 100, 0, 4), 1000),
            Disposition::kDelivered);
  Bytes packet = peer.Build(peer.Write(kWriteOnly, 101, 0, 4), 4);
  int good = 0;
  for (int i = 0; i < 1 << 20; ++i) {
    wire::StoreIcrc(packet.data() + packet.size() - wire::kIcrcSize,
                    static_cast<uint32_t>(random_()));
    if (peer.Deliver(packet) == Disposition::kDelivered) ++good;
  }
  EXPECT_LE(good, 5) << "0.4 expected, for the window around the last ID";
}

// --- TransmitScheduler.

// More queue pairs at the endpoint of a WirePeer, with the same peer.
class CrowdTest : public ::testing::Test {
 protected:
  QueuePair* Add(uint32_t qpn) {
    QpConfig config = peer.qp->config();
    config.qpn = qpn;
    config.capacity = {};
    all.push_back(MakeQueuePair(peer.endpoint, config));
    QpAttributes a = peer.attributes;
    for (QpState state : {QpState::kInit, QpState::kRtr, QpState::kRts}) {
      a.state = state;
      EXPECT_EQ(all.back()->Modify(a, WirePeer::MaskFor(state), 0), 0);
    }
    return all.back().get();
  }
  void DeliverTo(uint32_t qpn, wire::Headers headers, size_t payload = 0) {
    headers.bth.dest_qpn = qpn;
    EXPECT_EQ(peer.Deliver(headers, payload), Disposition::kDelivered);
  }

  WirePeer peer;
  std::vector<std::unique_ptr<QueuePair>> all;
};

TEST_F(CrowdTest, TurnsAreFairInBytes) {
  // Both stream a READ, with packets of different sizes (16 to 1).
  peer.target->claimed = 1u << 30;
  Add(1000);
  peer.attributes.path_mtu = 4096;
  Add(1001);
  DeliverTo(1000, peer.Read(100, 0, 1 << 24));
  DeliverTo(1001, peer.Read(100, 0, 1 << 24));
  const auto sent = [&](int i) { return all[i]->counters().tx_bytes; };
  int bursts = 0;
  while (sent(0) < (1 << 24) && sent(1) < (1 << 24)) {
    ASSERT_NE(peer.TransmitOne(), "");
    ++bursts;
    const uint64_t apart =
        std::max(sent(0), sent(1)) - std::min(sent(0), sent(1));
    ASSERT_LE(apart, 1u * TransmitScheduler::kQuantum + 2 * 65507);
  }
  EXPECT_GT(bursts, 64);
}

TEST_F(CrowdTest, SixteenThousand) {
  constexpr uint32_t kCount = 16384;
  for (uint32_t i = 0; i < kCount; ++i) Add(0x1000 + i);
  for (uint32_t i = 0; i < kCount; ++i) {
    DeliverTo(0x1000 + i, peer.Write(kWriteOnly, 100, 0, 0, true));
  }
  for (uint32_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(peer.TransmitOne(), "ACK 100 msn 1");
  }
  EXPECT_EQ(peer.TransmitOne(), "");
  EXPECT_FALSE(peer.endpoint.HasTransmit());
  EXPECT_EQ(peer.endpoint.counters().tx_datagrams, kCount);
}

// A GRO batch may have packets for several queue pairs, in any order; all of
// them are scheduled.
TEST_F(CrowdTest, ABatchForSeveral) {
  Add(1000);
  Add(1001);
  struct Strays : StraySink {
    void OnStray(const Datagram& datagram, uint32_t qpn) override {
      seen.emplace_back(qpn, datagram.segment_index);
    }
    std::vector<std::pair<uint32_t, uint16_t>> seen;
  } strays;
  Bytes bytes;
  uint16_t id = 0;
  uint32_t psn[2] = {100, 100};
  for (const uint32_t qpn : {1000, 1001, 1000, 77, 1000, 1001}) {
    wire::Headers headers = peer.Request(kSendOnly, 0, true);
    if (qpn != 77) {
      headers = peer.Write(kWriteOnly, psn[qpn - 1000]++, 0, 0, true);
    }
    headers.bth.dest_qpn = qpn;
    Bytes packet = peer.Build(headers);
    packet.resize(peer.Build(peer.Write(kWriteOnly, 100, 0, 0)).size());
    wire::IcrcFlow(peer.datagram.source, peer.datagram.destination,
                   peer.datagram.source_port, wire::kRoceUdpPort)
        .Store(packet, id++);
    bytes.insert(bytes.end(), packet.begin(), packet.end());
  }
  GroBatch batch;
  batch.bytes = bytes;
  batch.segment_size = bytes.size() / 6;
  batch.source = peer.datagram.source;
  batch.destination = peer.datagram.destination;
  batch.source_port = peer.datagram.source_port;
  peer.endpoint.OnGroBatch(batch, peer.now, &strays);
  using Seen = std::pair<uint32_t, uint16_t>;
  EXPECT_EQ(strays.seen, std::vector<Seen>{Seen(77, 3)});
  EXPECT_EQ(peer.TransmitOne(), "ACK 102 msn 3");
  EXPECT_EQ(peer.TransmitOne(), "ACK 101 msn 2");
  EXPECT_EQ(peer.TransmitOne(), "");
}

TEST_F(CrowdTest, DestroyedWithWorkToDo) {
  for (uint32_t i = 0; i < 10; ++i) {
    Add(1000 + i);
    DeliverTo(1000 + i, peer.Write(kWriteOnly, 100, 0, 4, true), 4);
  }
  for (int i : {9, 0, 4}) all[i].reset();
  wire::Headers headers = peer.Write(kWriteOnly, 101, 0, 0, true);
  headers.bth.dest_qpn = 1004;
  EXPECT_EQ(peer.Deliver(headers), Disposition::kUnknownQp);
  peer.endpoint.OnReceiveOverflow(peer.now);
  int acks = 0;
  for (std::string lines = peer.TransmitOne(); !lines.empty();
       lines = peer.TransmitOne()) {
    EXPECT_EQ(lines, "CNP; ACK 100 msn 1");
    ++acks;
  }
  EXPECT_EQ(acks, 7);
  EXPECT_EQ(peer.endpoint.NextTimeout(), kNever);
}

TEST_F(CrowdTest, OneSegmentPerBurst) {
  WirePeer::Options options;
  options.max_segments = 1;
  WirePeer single(options);
  single.Connect();
  single.Deliver(single.Read(100, 0, 600));
  EXPECT_EQ(single.Transmit(),
            "READ_FIRST 100 msn 1 [256] | READ_MIDDLE 101 [256] | "
            "READ_LAST 102 msn 1 [88]");
}

TEST_F(CrowdTest, SmallBurstBuffer) {
  WirePeer::Options options;
  options.burst_bytes = 600;
  WirePeer small(options);
  small.Connect();
  small.Deliver(small.Read(100, 0, 1280));
  EXPECT_EQ(small.Transmit(),
            "READ_FIRST 100 msn 1 [256]; READ_MIDDLE 101 [256] | "
            "READ_MIDDLE 102 [256]; READ_MIDDLE 103 [256] | "
            "READ_LAST 104 msn 1 [256]");
}

// --- The parts.

TEST(TimerHeapTest, AgainstAModel) {
  std::mt19937 random(7);
  std::vector<EndpointLink> links(200);
  std::map<EndpointLink*, Time> model;
  TimerHeap heap;
  for (int i = 0; i < 50000; ++i) {
    EndpointLink* link = &links[random() % links.size()];
    const Time deadline = static_cast<Time>(random() % 1000);
    switch (random() % 4) {
      case 0:
        heap.Remove(link);
        model.erase(link);
        break;
      case 1:
        heap.Set(link, kNever);
        model.erase(link);
        break;
      default:
        heap.Set(link, deadline);
        model[link] = deadline;
    }
    ASSERT_EQ(heap.empty(), model.empty());
    if (model.empty()) continue;
    Time least = kNever;
    for (const auto& entry : model) least = std::min(least, entry.second);
    ASSERT_EQ(heap.top()->deadline, least);
  }
}

// --- A sink that refuses one flow, and packets without ICRC.

class ChoosySink final : public BurstSink {
 public:
  Burst* Begin(const Flow& flow) override {
    if (refuses) return nullptr;
    burst_.Begin(&flow);
    return &burst_;
  }
  bool only_that_flow() const override { return only_that_flow_; }

  bool refuses = true;
  bool only_that_flow_ = true;

 private:
  std::vector<uint8_t> buffer_ = std::vector<uint8_t>(65507);
  Burst burst_{buffer_, 16};
};

TEST_F(EndpointTest, ARefusedFlowWaitsForRoom) {
  ChoosySink sink;
  peer.Deliver(peer.Write(kWriteOnly, WirePeer::kPsn, 0, 8, true), 8);
  ASSERT_TRUE(peer.endpoint.HasTransmit());
  EXPECT_EQ(peer.endpoint.PollTransmit(peer.now, &sink), nullptr);
  EXPECT_FALSE(peer.endpoint.HasTransmit());
  // Another input asks for its interests again.
  peer.Deliver(peer.Write(kWriteOnly, WirePeer::kPsn + 1, 0, 8, true), 8);
  ASSERT_TRUE(peer.endpoint.HasTransmit());
  EXPECT_EQ(peer.endpoint.PollTransmit(peer.now, &sink), nullptr);
  EXPECT_FALSE(peer.endpoint.HasTransmit());
  sink.refuses = false;
  EXPECT_EQ(peer.endpoint.PollTransmit(peer.now, &sink), nullptr);
  peer.endpoint.OnRoom(peer.now);
  EXPECT_EQ(peer.Transmit(), "ACK 101 msn 2");
  peer.endpoint.OnRoom(peer.now);
  EXPECT_FALSE(peer.endpoint.HasTransmit());
}

// As before its queue pair is destroyed.
TEST_F(EndpointTest, ARefusedFlowMayBeSentOtherwise) {
  ChoosySink sink;
  ChoosySink other;
  other.refuses = false;
  peer.Deliver(peer.Write(kWriteOnly, WirePeer::kPsn, 0, 8, true), 8);
  EXPECT_EQ(peer.endpoint.PollTransmit(peer.now, &sink), nullptr);
  const Burst* const burst =
      peer.endpoint.PollTransmitOf(peer.qp.get(), peer.now, &other);
  ASSERT_NE(burst, nullptr);
  EXPECT_EQ(burst->segments(), 1);
  EXPECT_EQ(peer.endpoint.PollTransmitOf(peer.qp.get(), peer.now, &other),
            nullptr);
  peer.endpoint.OnRoom(peer.now);
  EXPECT_FALSE(peer.endpoint.HasTransmit());
}

// Without only_that_flow(), the queue pair keeps its turn.
TEST_F(EndpointTest, ASinkWithoutABurstKeepsTheTurn) {
  ChoosySink sink;
  sink.only_that_flow_ = false;
  peer.Deliver(peer.Write(kWriteOnly, WirePeer::kPsn, 0, 8, true), 8);
  EXPECT_EQ(peer.endpoint.PollTransmit(peer.now, &sink), nullptr);
  EXPECT_TRUE(peer.endpoint.HasTransmit());
  EXPECT_EQ(peer.Transmit(), "ACK 100 msn 1");
}

TEST_F(EndpointTest, AQueuePairMayBeDestroyedWhileItsFlowIsRefused) {
  ChoosySink sink;
  peer.Deliver(peer.Write(kWriteOnly, WirePeer::kPsn, 0, 8, true), 8);
  EXPECT_EQ(peer.endpoint.PollTransmit(peer.now, &sink), nullptr);
  peer.qp.reset();
  peer.endpoint.OnRoom(peer.now);
  EXPECT_FALSE(peer.endpoint.HasTransmit());
}

// Only a burst without ICRCs is not read by the thread that fills it.
TEST_F(EndpointTest, PayloadIsStreamedIntoABurstWithoutIcrcs) {
  class Sink final : public BurstSink {
   public:
    explicit Sink(bool has_icrc) {
      if (!has_icrc) burst_ = Burst::WithoutIcrc(buffer_, 16);
    }
    Burst* Begin(const Flow& flow) override {
      burst_.Begin(&flow);
      return &burst_;
    }

   private:
    std::vector<uint8_t> buffer_ = std::vector<uint8_t>(65507);
    Burst burst_{buffer_, 16};
  };
  const std::vector<Sge> pieces = {{WirePeer::kVa, 20, peer.target->lkey},
                                   {WirePeer::kVa + 64, 30, peer.target->lkey}};
  uint32_t psn = WirePeer::kPsn;
  for (const bool has_icrc : {true, false}) {
    Sink sink(has_icrc);
    const size_t before = peer.memory.streamed();
    const auto transmit = [&] {
      while (peer.endpoint.PollTransmit(peer.now, &sink) != nullptr) {
      }
      return peer.memory.streamed() - before;
    };
    peer.Deliver(peer.Read(psn++, 0, 8));
    EXPECT_EQ(transmit(), has_icrc ? 0u : 8u);
    // The last packet of a queue, whose ICRC is not computed with the copy; and
    // a packet of two pieces.
    SendRequest request;
    request.opcode = SendOpcode::kSend;
    request.sges = pieces;
    ASSERT_EQ(peer.qp->PostSend(request, peer.now), 0);
    EXPECT_EQ(transmit(), has_icrc ? 0u : 58u);
  }
}

TEST_F(EndpointTest, ABatchWithoutIcrcIsNotVerified) {
  Bytes packet =
      peer.Build(peer.Write(kWriteOnly, WirePeer::kPsn, 0, 8, true), 8);
  std::fill(packet.end() - 4, packet.end(), 0);
  GroBatch batch;
  batch.bytes = packet;
  batch.segment_size = packet.size();
  batch.source = peer.datagram.source;
  batch.destination = peer.datagram.destination;
  batch.source_port = peer.datagram.source_port;
  peer.endpoint.OnGroBatch(batch, peer.now, nullptr);
  EXPECT_EQ(dropped(Disposition::kBadIcrc), 1u);
  EXPECT_EQ(peer.target->bytes[0], 0);
  batch.has_icrc = false;
  peer.endpoint.OnGroBatch(batch, peer.now, nullptr);
  EXPECT_EQ(dropped(Disposition::kBadIcrc), 1u);
  EXPECT_EQ(peer.target->bytes[0], 1);
  EXPECT_EQ(peer.Transmit(), "ACK 100 msn 1");
  // All other checks are made.
  batch.source = *wire::IpAddress::Parse("10.0.0.77");
  peer.endpoint.OnGroBatch(batch, peer.now, nullptr);
  EXPECT_EQ(peer.qp->counters().rx_packets, 1u);
}

}  // namespace
}  // namespace transport
