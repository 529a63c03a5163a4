#include "wire/dc.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>
#include <vector>

#include "wire/aeth.h"
#include "wire/frame.h"

namespace wire {
namespace {

std::vector<uint8_t> FromHex(const std::string& text) {
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(
        static_cast<uint8_t>(std::stoul(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

IcrcFlow FlowBetween(const char* source, const char* destination) {
  return IcrcFlow(*IpAddress::Parse(source), *IpAddress::Parse(destination),
                  0xc123, kRoceUdpPort);
}

constexpr uint16_t kIpId = 0x1234;

// A connect as a peer with other numbers than the captured ones would send it,
// and its answer.
TEST(DcTest, ConnectAndAnswer) {
  const Bth bth = {.dest_qpn = kNoDcQpn, .ack_req = true, .psn = 0x000100};
  const DcEth open = {.from_initiator = true,
                      .src_qpn = 0x11,
                      .initiator_session = 1,
                      .responder_session = kNoDcSession,
                      .dct = 0x22};
  std::array<uint8_t, kMaxHeaderSize> out;
  size_t size =
      EmitDcConnect(bth, open, {.access_key = 0x1122334455667788}, out.data());
  EXPECT_EQ(size, kDcConnectSize - kIcrcSize);
  std::vector<uint8_t> packet = BuildPacket(
      std::span<const uint8_t>(out).first(size), std::span<const uint8_t>(),
      FlowBetween("192.0.2.1", "192.0.2.2"), kIpId);
  EXPECT_EQ(packet, FromHex("5540ffff00ffffff80000100"
                            "110000110000000100ffffff0000002200000000"
                            "20000000000000001122334455667788"
                            "951557a2"));
  PacketView view;
  ASSERT_EQ(PacketView::Parse(packet, &view), ParseError::kOk);
  EXPECT_EQ(view.opcode(), kOpcodeDcConnect);
  EXPECT_STREQ(view.info().name, "DC_CONNECT");
  EXPECT_TRUE(view.info().is_request);
  EXPECT_EQ(view.dceth(), open);
  EXPECT_EQ(view.dcceth(), DccEth{.access_key = 0x1122334455667788});
  EXPECT_TRUE(view.payload().empty());

  const DcEth accepted = {.src_qpn = 0x800001,
                          .initiator_session = 1,
                          .responder_session = 7,
                          .dct = 0x22};
  size = EmitDcAnswer({.dest_qpn = 0x11, .psn = 0x100}, accepted, out.data());
  EXPECT_EQ(size, kDcAnswerPacketSize - kIcrcSize);
  packet = BuildPacket(std::span<const uint8_t>(out).first(size),
                       std::span<const uint8_t>(),
                       FlowBetween("192.0.2.2", "192.0.2.1"), kIpId);
  EXPECT_EQ(packet, FromHex("5140ffff0000001100000100"
                            "1080000100000001000000070000002200000000"
                            "640000001000000000000000"
                            "fcef9d7f"));
  ASSERT_EQ(PacketView::Parse(packet, &view), ParseError::kOk);
  EXPECT_TRUE(view.is_dc_answer());
  EXPECT_TRUE(view.info().is_response);
  EXPECT_STREQ(view.info().name, "DC_CONNECT_ANSWER");
  EXPECT_EQ(view.operation(), Operation::kAcknowledge);
  EXPECT_EQ(view.dceth(), accepted);
  EXPECT_EQ(view.aeth().syndrome, kDcAnswerSyndrome);
  EXPECT_TRUE(view.payload().empty());
  EXPECT_EQ(view.udp_payload().size(), packet.size());
}

TEST(DcTest, NoMessagesAreCounted) {
  Headers headers;
  headers.bth.opcode = MakeOpcode(Transport::kDc, Operation::kAcknowledge);
  headers.aeth = {.syndrome = MakeAckSyndrome(kCreditNone), .msn = 77};
  std::array<uint8_t, kMaxHeaderSize> out;
  const size_t size = EmitDcHeaders(headers, {.dct = 5}, out.data());
  EXPECT_EQ(size, kBthSize + kDcEthSize + kAethSize);
  std::vector<uint8_t> packet(out.begin(), out.begin() + size);
  packet.resize(size + kIcrcSize);
  PacketView view;
  ASSERT_EQ(PacketView::Parse(packet, &view), ParseError::kOk);
  EXPECT_EQ(view.aeth(), (Aeth{.syndrome = 0x1f, .msn = 0}));
  EXPECT_FALSE(view.is_dc_answer());
}

// Only an ACKNOWLEDGE with that syndrome may have 8 more bytes.
TEST(DcTest, OtherAcknowledgementsHaveNothingBehindThem) {
  Headers headers;
  headers.bth.opcode = MakeOpcode(Transport::kDc, Operation::kAcknowledge);
  for (const int syndrome : {0x1f, 0x20, 0x60, 0x62, 0x64}) {
    headers.aeth.syndrome = static_cast<uint8_t>(syndrome);
    std::array<uint8_t, kMaxHeaderSize> out;
    const size_t size = EmitDcHeaders(headers, {}, out.data());
    for (const size_t more : {0, 4, 8, 12}) {
      std::vector<uint8_t> packet(out.begin(), out.begin() + size);
      packet.resize(size + more + kIcrcSize);
      PacketView view;
      const bool answer = syndrome == kDcAnswerSyndrome && more == 8;
      EXPECT_EQ(PacketView::Parse(packet, &view),
                more == 0 || answer ? ParseError::kOk : ParseError::kBadLength)
          << syndrome << ' ' << more;
    }
  }
  headers.bth.opcode =
      MakeOpcode(Transport::kDc, Operation::kAtomicAcknowledge);
  headers.aeth.syndrome = 0;
  std::array<uint8_t, kMaxHeaderSize> out;
  std::vector<uint8_t> packet(EmitDcHeaders(headers, {}, out.data()) + 8 +
                              kIcrcSize);
  packet[0] = headers.bth.opcode;
  PacketView view;
  EXPECT_EQ(PacketView::Parse(packet, &view), ParseError::kBadLength);
}

TEST(DcTest, EveryOpcodeComesBackAsItWasEmitted) {
  std::mt19937 generator(1);
  const auto random = [&] { return static_cast<uint32_t>(generator()); };
  for (int opcode = 0x40; opcode < 0x60; ++opcode) {
    const OpcodeInfo& info = GetOpcodeInfo(static_cast<uint8_t>(opcode));
    ASSERT_EQ(info.known, opcode <= 0x57) << opcode;
    if (!info.known || info.Has(kDccEth)) continue;
    EXPECT_EQ(TransportOf(static_cast<uint8_t>(opcode)), Transport::kDc);
    const OpcodeInfo& rc = GetOpcodeInfo(static_cast<uint8_t>(opcode - 0x40));
    EXPECT_EQ(info.header_length, rc.header_length + kDcEthSize);
    EXPECT_EQ(info.is_request, rc.is_request);
    EXPECT_EQ(info.carries_payload, rc.carries_payload);
    Headers headers;
    headers.bth.opcode = static_cast<uint8_t>(opcode);
    headers.bth.dest_qpn = random() & kQpnMask;
    headers.bth.psn = random() & kPsnMask;
    if (info.Has(kReth)) headers.reth = {random(), random(), random()};
    if (info.Has(kAtomicEth)) headers.atomic = {random(), random(), 1, 2};
    if (info.Has(kAtomicAckEth)) headers.atomic_ack = {random()};
    if (info.Has(kImmDt)) headers.imm_be = random();
    if (info.Has(kIeth)) headers.invalidate_rkey = random();
    const DcEth dceth = {.version = static_cast<uint8_t>(random() & 0xf),
                         .from_initiator = (random() & 1) != 0,
                         .src_qpn = random() & kQpnMask,
                         .initiator_session = random() & kQpnMask,
                         .responder_session = random() & kQpnMask,
                         .dct = random() & kQpnMask};
    std::array<uint8_t, kMaxHeaderSize> out;
    std::vector<uint8_t> packet(out.size());
    packet.resize(EmitDcHeaders(headers, dceth, packet.data()) + kIcrcSize);
    PacketView view;
    ASSERT_EQ(PacketView::Parse(packet, &view), ParseError::kOk) << info.name;
    EXPECT_EQ(view.headers(), headers) << info.name;
    EXPECT_EQ(view.dceth(), dceth) << info.name;
    for (size_t size = 0; size < packet.size(); ++size) {
      EXPECT_NE(PacketView::Parse(std::span(packet).first(size), &view),
                ParseError::kOk);
    }
  }
}

}  // namespace
}  // namespace wire
