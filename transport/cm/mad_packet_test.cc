#include "transport/cm/mad_packet.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>

#include "wire/icrc.h"
#include "wire/packet.h"

namespace transport::cm {
namespace {

using Packet = std::array<uint8_t, kMadPacketSize>;

MadFlow Flow(const std::string& source = "192.0.2.1",
             const std::string& destination = "192.0.2.2") {
  return {.source = *wire::IpAddress::Parse(source),
          .destination = *wire::IpAddress::Parse(destination),
          .source_port = 0xc123};
}

std::array<uint8_t, wire::kMadSize> SomeMad() {
  std::array<uint8_t, wire::kMadSize> mad;
  for (size_t i = 0; i < mad.size(); ++i) mad[i] = static_cast<uint8_t>(i * 7);
  return mad;
}

Packet Emit(const MadFlow& flow) {
  Packet packet;
  EmitMadPacket(flow, 0x1234567, SomeMad(), packet);
  return packet;
}

// Computes a good ICRC for a modified packet.
Packet Resealed(const MadFlow& flow, Packet packet, uint16_t ip_id = 0) {
  wire::IcrcFlow(flow.source, flow.destination, flow.source_port,
                 wire::kRoceUdpPort)
      .Store(packet, ip_id);
  return packet;
}

MadPacketError Parse(const MadFlow& flow, std::span<const uint8_t> packet) {
  std::span<const uint8_t> mad;
  return ParseMadPacket(flow, packet, &mad);
}

TEST(MadPacket, RoundTrips) {
  for (const MadFlow& flow : {Flow(), Flow("2001:db8::1", "2001:db8::2")}) {
    const Packet packet = Emit(flow);
    wire::PacketView view;
    ASSERT_EQ(wire::PacketView::Parse(packet, &view), wire::ParseError::kOk);
    EXPECT_EQ(view.bth().dest_qpn, 1u);
    EXPECT_EQ(view.bth().pkey, 0xffff);
    EXPECT_EQ(view.bth().psn, 0x234567u);
    EXPECT_EQ(view.deth().qkey, 0x80010000u);
    EXPECT_EQ(view.deth().src_qpn, 1u);
    std::span<const uint8_t> mad;
    ASSERT_EQ(ParseMadPacket(flow, packet, &mad), MadPacketError::kOk);
    EXPECT_TRUE(std::ranges::equal(mad, SomeMad()));
  }
}

TEST(MadPacket, IsGoodWithAnyIpIdentification) {
  EXPECT_EQ(Parse(Flow(), Resealed(Flow(), Emit(Flow()), 0xbeef)),
            MadPacketError::kOk);
}

TEST(MadPacket, DamagedOrOfAnotherFlowIsBad) {
  Packet packet = Emit(Flow());
  EXPECT_EQ(Parse(Flow("192.0.2.3"), packet), MadPacketError::kBadIcrc);
  packet[100] ^= 1;
  EXPECT_EQ(Parse(Flow(), packet), MadPacketError::kBadIcrc);
}

TEST(MadPacket, ErrorsAreDistinguished) {
  const Packet good = Emit(Flow());
  Packet packet = good;
  packet[7] = 2;
  EXPECT_EQ(Parse(Flow(), Resealed(Flow(), packet)), MadPacketError::kOtherQp);
  packet = good;
  packet[3] = 0xfe;  // another partition
  EXPECT_EQ(Parse(Flow(), Resealed(Flow(), packet)), MadPacketError::kBadKey);
  packet = good;
  packet[2] = 0x7f;  // limited member
  EXPECT_EQ(Parse(Flow(), Resealed(Flow(), packet)), MadPacketError::kOk);
  packet = good;
  packet[12] = 0;  // Q_Key
  EXPECT_EQ(Parse(Flow(), Resealed(Flow(), packet)), MadPacketError::kBadKey);
  EXPECT_EQ(Parse(Flow(), std::span(good).first(good.size() - 4)),
            MadPacketError::kMalformed);
  EXPECT_EQ(Parse(Flow(), {}), MadPacketError::kMalformed);
}

}  // namespace
}  // namespace transport::cm
