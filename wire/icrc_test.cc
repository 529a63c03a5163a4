#include "wire/icrc.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "wire/frame.h"
#include "wire/packet.h"

namespace wire {
namespace {

constexpr uint16_t kId = 0x9a3c;

IpAddress Address(const std::string& text) { return *IpAddress::Parse(text); }

IcrcFlow FlowV4() {
  return IcrcFlow(Address("192.0.2.1"), Address("198.51.100.7"), 49441,
                  kRoceUdpPort);
}

FrameHeaders FrameOf(bool v4) {
  FrameHeaders h;
  h.src = Address(v4 ? "192.0.2.1" : "2001:db8::1");
  h.dst = Address(v4 ? "198.51.100.7" : "2001:db8:1::7");
  h.src_port = 49441;
  h.ip_id = kId;
  return h;
}

std::vector<uint8_t> RandomBytes(size_t size, std::mt19937& random) {
  std::vector<uint8_t> bytes(size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

// One packet of each known opcode with random headers, and several payload
// sizes where it may carry payload.
std::vector<std::vector<uint8_t>> RepresentativePackets(const IcrcFlow& flow) {
  std::mt19937 random(7);
  std::vector<std::vector<uint8_t>> packets;
  for (int opcode = 0; opcode < 256; ++opcode) {
    Headers headers;
    headers.bth.opcode = static_cast<uint8_t>(opcode);
    headers.bth.dest_qpn = static_cast<uint32_t>(random());
    headers.bth.psn = static_cast<uint32_t>(random());
    headers.reth = {random(), static_cast<uint32_t>(random()), 64};
    headers.deth = {static_cast<uint32_t>(random()), 17};
    headers.aeth = {0x1f, static_cast<uint32_t>(random())};
    const OpcodeInfo& info = GetOpcodeInfo(headers.bth.opcode);
    if (!info.known) continue;
    for (const size_t size : {0, 1, 2, 3, 4, 64, 257}) {
      if (size > 0 && !info.carries_payload) break;
      packets.push_back(
          BuildPacket(headers, RandomBytes(size, random), flow, kId));
    }
  }
  return packets;
}

// Bitwise reference over the bytes that A17 lists.
uint32_t ReferenceIcrc(std::vector<uint8_t> covered) {
  uint32_t crc = 0xffffffff;
  for (const uint8_t byte : covered) {
    crc ^= byte;
    for (int i = 0; i < 8; ++i) {
      crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xedb88320 : 0);
    }
  }
  return ~crc;
}

TEST(IcrcTest, MatchesTheDefinitionV4) {
  const std::vector<uint8_t> packet = {0x04, 0x70, 0xff, 0xff, 0xc0, 0x00,
                                       0x00, 0x11, 0x80, 0x12, 0x34, 0x56,
                                       'a',  0,    0,    0};
  std::vector<uint8_t> covered(8, 0xff);
  covered.insert(covered.end(),
                 {0x45, 0xff, 0,    48,   0x9a, 0x3c, 0x40, 0,   0xff, 17,
                  0xff, 0xff, 192,  0,    2,    1,    198,  51,  100,  7,
                  0xc1, 0x21, 0x12, 0xb7, 0,    28,   0xff, 0xff});
  covered.insert(covered.end(), packet.begin(), packet.end());
  covered[8 + 28 + 4] = 0xff;
  EXPECT_EQ(FlowV4().Compute(packet, kId), ReferenceIcrc(covered));
  covered[14] = 0;
  EXPECT_EQ(FlowV4().Compute(packet, kId, /*df=*/false),
            ReferenceIcrc(covered));
}

TEST(IcrcTest, MatchesTheDefinitionV6) {
  const IcrcFlow flow(Address("2001:db8::1"), Address("2001:db8::2"), 49441,
                      kRoceUdpPort);
  const std::vector<uint8_t> packet = {0x04, 0x40, 0xff, 0xff, 0x40, 0x00,
                                       0x00, 0x11, 0x80, 0x12, 0x34, 0x56};
  std::vector<uint8_t> covered(8, 0xff);
  covered.insert(covered.end(), {0x6f, 0xff, 0xff, 0xff, 0, 24, 17, 0xff});
  for (const char* text : {"2001:db8::1", "2001:db8::2"}) {
    const IpAddress address = Address(text);
    covered.insert(covered.end(), address.bytes.begin(), address.bytes.end());
  }
  covered.insert(covered.end(), {0xc1, 0x21, 0x12, 0xb7, 0, 24, 0xff, 0xff});
  covered.insert(covered.end(), packet.begin(), packet.end());
  covered[8 + 48 + 4] = 0xff;
  EXPECT_FALSE(flow.is_v4());
  EXPECT_EQ(flow.Compute(packet, kId), ReferenceIcrc(covered));
  EXPECT_EQ(flow.Compute(packet, 0, false), ReferenceIcrc(covered));
}

// Every varying byte counts, at any size and in pieces of any size.
TEST(IcrcTest, MatchesTheDefinitionAtEverySize) {
  std::mt19937 random(6);
  for (const bool v4 : {true, false}) {
    const FrameHeaders headers = FrameOf(v4);
    for (size_t size = kBthSize; size < 3000; size += size < 300 ? 1 : 97) {
      const std::vector<uint8_t> packet = RandomBytes(size, random);
      std::vector<uint8_t> covered(8, 0xff);
      const auto add = [&](std::initializer_list<size_t> bytes) {
        for (const size_t byte : bytes)
          covered.push_back(static_cast<uint8_t>(byte));
      };
      const size_t udp = size + 12;
      if (v4) {
        add({0x45, 0xff, (udp + 20) >> 8, udp + 20, kId >> 8, kId & 0xff, 0x40,
             0, 0xff, 17, 0xff, 0xff});
      } else {
        add({0x6f, 0xff, 0xff, 0xff, udp >> 8, udp, 17, 0xff});
      }
      for (const IpAddress& a : {headers.src, headers.dst})
        covered.insert(covered.end(), a.bytes.begin() + (v4 ? 12 : 0),
                       a.bytes.end());
      add({49441 >> 8, 49441 & 0xff, kRoceUdpPort >> 8, kRoceUdpPort & 0xff,
           udp >> 8, udp, 0xff, 0xff});
      const size_t bth = covered.size();
      covered.insert(covered.end(), packet.begin(), packet.end());
      covered[bth + 4] = 0xff;
      const uint32_t expected = ReferenceIcrc(covered);
      const IcrcFlow flow = headers.icrc_flow();
      const std::span<const uint8_t> all(packet);
      ASSERT_EQ(flow.Compute(all, kId), expected) << size;
      uint32_t icrc = flow.Begin(packet.data(), size, kId);
      for (size_t at = kBthSize, n = 0; at < size; at += n) {
        n = std::min<size_t>(random() % 10, size - at);
        icrc = IcrcFlow::Extend(icrc, all.subspan(at, n));
      }
      ASSERT_EQ(icrc, expected) << size;
    }
  }
}

TEST(IcrcTest, PiecesGiveTheSameAsTheWhole) {
  std::mt19937 random(1);
  const IcrcFlow flow = FlowV4();
  for (const size_t size : {12, 13, 64, 65, 66, 500, 4096}) {
    const std::vector<uint8_t> bytes = RandomBytes(size, random);
    const std::span<const uint8_t> all(bytes);
    for (const size_t cut : {size_t{12}, size / 2, size - 1, size}) {
      if (cut < kBthSize) continue;
      uint32_t icrc = flow.Begin(bytes.data(), size, kId);
      icrc = IcrcFlow::Extend(icrc, all.subspan(kBthSize, cut - kBthSize));
      icrc = IcrcFlow::Extend(icrc, all.subspan(cut));
      EXPECT_EQ(icrc, flow.Compute(all, kId)) << size << " cut at " << cut;
    }
  }
}

TEST(IcrcTest, BothCrcImplementationsAgree) {
  std::mt19937 random(2);
  for (const IcrcFlow& flow : {FlowV4(), FrameOf(false).icrc_flow()}) {
    for (size_t size = kBthSize; size < 5000; size += size < 300 ? 1 : 97) {
      const std::vector<uint8_t> bytes = RandomBytes(size, random);
      const bool was = internal::SetCrcSparse(false);
      const uint32_t by_isal = flow.Compute(bytes, kId);
      EXPECT_FALSE(internal::SetCrcSparse(true));
      const uint32_t by_sparse = flow.Compute(bytes, kId);
      EXPECT_TRUE(internal::SetCrcSparse(was));
      ASSERT_EQ(by_isal, by_sparse) << size;
    }
  }
}

TEST(IcrcTest, StoresLeastSignificantByteFirst) {
  std::vector<uint8_t> packet(20);
  packet[0] = 0x11;
  const IcrcFlow flow = FlowV4();
  flow.Store(packet, kId);
  const uint32_t icrc =
      flow.Compute(std::span<const uint8_t>(packet).first(16), kId);
  EXPECT_EQ(packet[16], icrc & 0xff);
  EXPECT_EQ(packet[19], icrc >> 24);
  EXPECT_TRUE(flow.Verify(packet, kId));
  EXPECT_FALSE(flow.Verify(packet, kId + 1));
  EXPECT_FALSE(flow.Verify(packet, kId, /*df=*/false));
}

TEST(IcrcTest, TooShortIsBad) {
  const std::vector<uint8_t> bytes(15);
  for (size_t size = 0; size <= bytes.size(); ++size) {
    const std::span<const uint8_t> part(bytes.data(), size);
    EXPECT_FALSE(FlowV4().Verify(part, 0));
    EXPECT_FALSE(VerifyAnyId(FlowV4(), part, 0, std::nullopt));
  }
}

// Flips each bit of each representative frame, from the IP header to the ICRC.
// Verify detects it, except in fields that the ICRC leaves out.
TEST(IcrcTest, EverySingleBitErrorIsFoundAndMaskedBitsDoNotMatter) {
  constexpr size_t kIpAt = 14;
  for (const bool v4 : {true, false}) {
    const FrameHeaders headers = FrameOf(v4);
    const size_t udp_at = kIpAt + (v4 ? 20 : 40);
    const size_t bth_at = udp_at + 8;
    const auto masked = [&](size_t bit) {
      const size_t byte = bit / 8;
      if (byte == udp_at + 6 || byte == udp_at + 7) return true;
      if (byte == bth_at + 4) return true;
      if (v4) {
        return byte == kIpAt + 1 || byte == kIpAt + 8 || byte == kIpAt + 10 ||
               byte == kIpAt + 11;
      }
      // The first word except the version.
      return (byte > kIpAt && byte < kIpAt + 4) || byte == kIpAt + 7 ||
             (byte == kIpAt && bit % 8 < 4);
    };
    for (const auto& packet : RepresentativePackets(headers.icrc_flow())) {
      std::vector<uint8_t> bytes = BuildFrame(headers, packet);
      for (size_t bit = 8 * kIpAt; bit < 8 * bytes.size(); ++bit) {
        bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
        Frame frame;
        const bool good =
            DecodeFrame(1, bytes, &frame) == FrameKind::kUdp &&
            !frame.is_truncated() &&
            frame.headers.icrc_flow().Verify(
                frame.udp_payload, frame.headers.ip_id, frame.headers.df);
        bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
        ASSERT_EQ(good, masked(bit))
            << GetOpcodeInfo(packet[0]).name << " of " << packet.size()
            << ", bit " << bit % 8 << " of byte " << bit / 8;
      }
    }
  }
}

TEST(SolveIpIdTest, FindsEveryId) {
  const IcrcFlow flow = FlowV4();
  std::mt19937 random(3);
  const std::vector<uint8_t> packet = RandomBytes(1040, random);
  const uint32_t assumed = flow.Compute(packet, 5);
  for (uint32_t id = 0; id < 65536; ++id) {
    const uint16_t ip_id = static_cast<uint16_t>(id);
    ASSERT_EQ(SolveIpId(flow.Compute(packet, ip_id), assumed, 5, 1040), ip_id);
  }
}

TEST(SolveIpIdTest, FindsItAtEveryLength) {
  const IcrcFlow flow = FlowV4();
  std::mt19937 random(4);
  const std::vector<uint8_t> bytes = RandomBytes(65503, random);
  for (size_t size = kBthSize; size <= bytes.size();
       size += size < 4200 ? 1 : 997) {
    const std::span<const uint8_t> packet(bytes.data(), size);
    const uint16_t id = static_cast<uint16_t>(random());
    ASSERT_EQ(
        SolveIpId(flow.Compute(packet, id), flow.Compute(packet, 0), 0, size),
        id)
        << size;
  }
}

TEST(SolveIpIdTest, RefusesNearlyAllOtherValues) {
  std::mt19937 random(5);
  int accepted = 0;
  for (int i = 0; i < 1 << 20; ++i) {
    if (SolveIpId(static_cast<uint32_t>(random()), 0, 0, 1040)) ++accepted;
  }
  EXPECT_GT(accepted, 2) << "16 expected";
  EXPECT_LT(accepted, 40);
}

TEST(SolveIpIdTest, NoPacketIsThatLong) {
  EXPECT_FALSE(SolveIpId(1, 2, 0, 70000));
}

TEST(SolveSourceTest, FindsEveryPort) {
  std::mt19937 random(6);
  for (const size_t size : {12u, 16u, 64u, 1040u, 4140u}) {
    const std::vector<uint8_t> packet = RandomBytes(size, random);
    for (const char* text : {"10.0.0.1", "2001:db8::1"}) {
      const IpAddress address = *IpAddress::Parse(text);
      const auto icrc = [&](uint16_t port) {
        return IcrcFlow(address, address, port, kRoceUdpPort)
            .Compute(packet, 0);
      };
      for (const uint16_t port : {0, 1, 4791, 0xc000, 0xc123, 0xffff}) {
        EXPECT_EQ(SolveSourcePort(icrc(port), icrc(0xc000), 0xc000, size),
                  port);
      }
      EXPECT_FALSE(SolveSourcePort(icrc(1) ^ 1, icrc(2), 2, size));
    }
  }
  EXPECT_FALSE(SolveSourcePort(1, 2, 0, 70000));
}

TEST(SolveSourceTest, FindsEveryAddress) {
  std::mt19937 random(7);
  const IpAddress here = *IpAddress::Parse("203.0.113.9");
  for (const size_t size : {12u, 24u, 4140u}) {
    const std::vector<uint8_t> packet = RandomBytes(size, random);
    for (const char* text :
         {"10.0.0.1", "192.168.7.200", "0.0.0.0", "255.255.255.255"}) {
      const IpAddress source = *IpAddress::Parse(text);
      const auto icrc = [&](const IpAddress& from) {
        return IcrcFlow(from, here, kRoceUdpPort, kRoceUdpPort)
            .Compute(packet, 3);
      };
      EXPECT_EQ(SolveSourceV4(icrc(source), icrc(here), here, size), source);
    }
  }
}

std::vector<uint8_t> PacketWithId(uint16_t id) {
  Headers headers;
  headers.bth.opcode = 0x04;
  return BuildPacket(headers, std::vector<uint8_t>(64, 'x'), FlowV4(), id);
}

TEST(VerifyAnyIdTest, SegmentIndexAndZeroAreAlwaysGood) {
  EXPECT_EQ(VerifyAnyId(FlowV4(), PacketWithId(7), 7, 40000), 7);
  EXPECT_EQ(VerifyAnyId(FlowV4(), PacketWithId(0), 7, 40000), 0);
  EXPECT_EQ(VerifyAnyId(FlowV4(), PacketWithId(0), 0, 40000), 0);
}

TEST(VerifyAnyIdTest, FirstContactAcceptsAnyId) {
  for (const uint16_t id : {1, 4711, 40000, 65535}) {
    EXPECT_EQ(VerifyAnyId(FlowV4(), PacketWithId(id), 0, std::nullopt), id);
  }
}

TEST(VerifyAnyIdTest, WindowAroundTheLastId) {
  const auto verify = [](int id, uint16_t last, uint32_t forward) {
    return VerifyAnyId(FlowV4(), PacketWithId(static_cast<uint16_t>(id)), 0,
                       last, forward);
  };
  for (const int last : {100, 30000, 65535, 1}) {
    const uint16_t last_id = static_cast<uint16_t>(last);
    EXPECT_TRUE(verify(last, last_id, 50));
    EXPECT_TRUE(verify(last + 50, last_id, 50));
    EXPECT_FALSE(verify(last + 51, last_id, 50));
    EXPECT_TRUE(verify(last - static_cast<int>(kIpIdBackward), last_id, 50));
    EXPECT_FALSE(
        verify(last - static_cast<int>(kIpIdBackward) - 1, last_id, 50));
    EXPECT_TRUE(verify(last + 32768, last_id, 0x10000)) << "anything";
  }
}

TEST(VerifyAnyIdTest, WindowGrowsWithSilence) {
  EXPECT_EQ(IpIdForwardWindow(-5), kIpIdForward);
  EXPECT_EQ(IpIdForwardWindow(0), kIpIdForward);
  EXPECT_EQ(IpIdForwardWindow(1'000'000), kIpIdForward + 16'000);
  EXPECT_EQ(IpIdForwardWindow(5'000'000), 0x10000u);
  EXPECT_EQ(IpIdForwardWindow(INT64_MAX), 0x10000u);
}

TEST(VerifyAnyIdTest, V6IsExact) {
  const FrameHeaders headers = FrameOf(false);
  Headers h;
  h.bth.opcode = 0x04;
  std::vector<uint8_t> packet =
      BuildPacket(h, std::vector<uint8_t>(64, 'x'), headers.icrc_flow(), 0);
  EXPECT_EQ(VerifyAnyId(headers.icrc_flow(), packet, 3, 9), 0);
  packet[20] ^= 1;
  EXPECT_FALSE(VerifyAnyId(headers.icrc_flow(), packet, 3, std::nullopt));
}

// Damage may look like another ID, but must fall into the window. In these
// frames no single bit does.
TEST(VerifyAnyIdTest, EverySingleBitErrorIsFound) {
  for (const bool v4 : {true, false}) {
    const IcrcFlow flow = FrameOf(v4).icrc_flow();
    for (std::vector<uint8_t> packet : RepresentativePackets(flow)) {
      ASSERT_EQ(VerifyAnyId(flow, packet, 0, kId), v4 ? kId : 0);
      for (size_t bit = 0; bit < 8 * packet.size(); ++bit) {
        packet[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
        ASSERT_EQ(VerifyAnyId(flow, packet, 0, kId).has_value(), bit / 8 == 4)
            << GetOpcodeInfo(packet[0]).name << " of " << packet.size()
            << ", bit " << bit;
        packet[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
      }
    }
  }
}

// The bounds of icrc.h: 2^-16 for any ID, less with a window.
TEST(VerifyAnyIdTest, RandomDamagePassesAsRarelyAsPromised) {
  const IcrcFlow flow = FlowV4();
  std::mt19937 random(6);
  std::vector<uint8_t> packet = PacketWithId(kId);
  int any = 0, near = 0;
  for (int i = 0; i < 1 << 21; ++i) {
    StoreIcrc(packet.data() + packet.size() - kIcrcSize,
              static_cast<uint32_t>(random()));
    if (VerifyAnyId(flow, packet, 0, std::nullopt)) ++any;
    if (VerifyAnyId(flow, packet, 0, kId)) ++near;
  }
  EXPECT_LT(any, 70) << "32 expected";
  EXPECT_LE(near, 5) << "0.5 expected";
}

}  // namespace
}  // namespace wire
