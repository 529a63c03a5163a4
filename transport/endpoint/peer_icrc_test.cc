// The IP identifications of a peer, which its ICRCs cover.
#include "transport/endpoint/peer_icrc.h"

#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "transport/testing/endpoint_fixture.h"
#include "wire/aeth.h"
#include "wire/icrc.h"

namespace transport {
namespace {

using enum wire::Operation;
using Bytes = std::vector<uint8_t>;

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

}  // namespace
}  // namespace transport
