#include "wire/ethernet.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "wire/bytes.h"
#include "wire/frame.h"

namespace wire {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes UdpFrame(const char* source, const char* destination,
               std::optional<uint16_t> vlan = std::nullopt) {
  FrameHeaders headers;
  headers.src = *IpAddress::Parse(source);
  headers.dst = *IpAddress::Parse(destination);
  headers.src_port = 1234;
  headers.dst_port = 80;
  headers.vlan = vlan;
  return BuildFrame(headers, Bytes{1, 2, 3, 4, 5});
}

// Ethernet, IPv4 or IPv6, TCP with `flags`, `payload` bytes.
Bytes TcpFrame(bool v6, uint8_t flags, size_t payload) {
  const size_t ip = v6 ? 40 : 20;
  Bytes frame(14 + ip + 20 + payload);
  StoreBe16(&frame[12], v6 ? 0x86dd : 0x0800);
  uint8_t* const p = &frame[14];
  if (v6) {
    p[0] = 0x60;
    StoreBe16(p + 4, static_cast<uint16_t>(20 + payload));
    p[6] = 6;
    p[23] = p[39] = 1;
  } else {
    p[0] = 0x45;
    StoreBe16(p + 2, static_cast<uint16_t>(40 + payload));
    StoreBe16(p + 4, 0xffff);  // identification
    p[8] = 64;
    p[9] = 6;
    StoreBe32(p + 12, 0x0a000001);
    StoreBe32(p + 16, 0x0a000002);
  }
  uint8_t* const tcp = p + ip;
  StoreBe16(tcp, 1000);
  StoreBe16(tcp + 2, 2000);
  StoreBe32(tcp + 4, 0xfffffff0);
  tcp[12] = 0x50;
  tcp[13] = flags;
  return frame;
}

TEST(EthernetTest, FindsTheHeadersOfIpv4AndIpv6) {
  const Bytes v4 = UdpFrame("192.0.2.1", "192.0.2.2");
  EthernetFrame frame;
  ASSERT_TRUE(ParseEthernet(v4, &frame));
  EXPECT_EQ(frame.ether_type, 0x0800);
  EXPECT_EQ(frame.layer3, Layer3::kIpv4);
  EXPECT_EQ(frame.layer4, Layer4::kUdp);
  EXPECT_EQ(frame.ip, 14u);
  EXPECT_EQ(frame.transport, 34u);
  EXPECT_EQ(frame.end, v4.size());
  EXPECT_FALSE(frame.has_vlan);

  const Bytes v6 = UdpFrame("2001:db8::1", "2001:db8::2");
  ASSERT_TRUE(ParseEthernet(v6, &frame));
  EXPECT_EQ(frame.layer3, Layer3::kIpv6);
  EXPECT_EQ(frame.layer4, Layer4::kUdp);
  EXPECT_EQ(frame.transport, 54u);
}

TEST(EthernetTest, SkipsAVlanTag) {
  const Bytes tagged = UdpFrame("192.0.2.1", "192.0.2.2", 77);
  EthernetFrame frame;
  ASSERT_TRUE(ParseEthernet(tagged, &frame));
  EXPECT_TRUE(frame.has_vlan);
  EXPECT_EQ(frame.vlan_tag & 0xfff, 77);
  EXPECT_EQ(frame.layer4, Layer4::kUdp);
}

TEST(EthernetTest, TruncatedFramesAreNotReadBeyondTheirEnd) {
  const Bytes whole = TcpFrame(true, 0, 10);
  for (size_t size = 0; size < whole.size(); ++size) {
    // Its own allocation, so that a sanitizer sees reads beyond the end.
    const Bytes part(whole.begin(),
                     whole.begin() + static_cast<ptrdiff_t>(size));
    EthernetFrame frame;
    EXPECT_EQ(ParseEthernet(part, &frame), size >= 14) << size;
    if (size < 14) continue;
    EXPECT_LE(frame.end, size);
    EXPECT_EQ(frame.layer4 == Layer4::kTcp, size >= 74) << size;
  }
}

TEST(EthernetTest, ExtensionHeadersAndFragments) {
  Bytes bytes = TcpFrame(true, 0, 8);
  // A hop-by-hop header of 8 bytes before TCP.
  const Bytes extension = {6, 0, 1, 4, 0, 0, 0, 0};
  bytes.insert(bytes.begin() + 54, extension.begin(), extension.end());
  bytes[20] = 0;
  StoreBe16(&bytes[18], static_cast<uint16_t>(bytes.size() - 54));
  EthernetFrame frame;
  ASSERT_TRUE(ParseEthernet(bytes, &frame));
  EXPECT_EQ(frame.layer4, Layer4::kTcp);
  EXPECT_EQ(frame.transport, 62u);
  // A length beyond the frame ends the search.
  bytes[55] = 255;
  ASSERT_TRUE(ParseEthernet(bytes, &frame));
  EXPECT_EQ(frame.layer4, Layer4::kOther);

  Bytes fragment = TcpFrame(false, 0, 8);
  StoreBe16(&fragment[20], 0x2000);  // more fragments
  ASSERT_TRUE(ParseEthernet(fragment, &frame));
  EXPECT_TRUE(frame.is_fragment);
  EXPECT_EQ(frame.layer4, Layer4::kOther);
}

TEST(EthernetTest, FilledChecksumsAreGood) {
  for (const size_t payload : {0, 1, 2, 3, 100, 1001}) {
    Bytes bytes = TcpFrame(false, 0, payload);
    EthernetFrame frame;
    ASSERT_TRUE(ParseEthernet(bytes, &frame));
    EXPECT_FALSE(Ipv4ChecksumsAreGood(frame));
    FillChecksums(frame, bytes.data());
    EXPECT_TRUE(Ipv4ChecksumsAreGood(frame)) << payload;
    bytes.back() ^= 1;
    EXPECT_FALSE(Ipv4ChecksumsAreGood(frame)) << payload;
    bytes.back() ^= 1;
    bytes[22] ^= 1;  // TTL
    EXPECT_FALSE(Ipv4ChecksumsAreGood(frame)) << payload;
  }
}

// The sum of an IPv4 header by RFC 1071, computed by hand: 45 00 00 1c 00 00 00
// 00 40 fd 00 00 c0 00 02 01 c0 00 02 02 adds up to 0x4821 + ... = ~0x7623.
TEST(EthernetTest, TheChecksumIsRfc1071s) {
  Bytes bytes(14 + 28);
  bytes[12] = 8;
  const Bytes header = {0x45, 0, 0,    0x1c, 0, 0, 0,    0, 0x40, 0xfd,
                        0,    0, 0xc0, 0,    2, 1, 0xc0, 0, 2,    2};
  std::ranges::copy(header, bytes.begin() + 14);
  uint32_t sum = 0;
  for (size_t i = 0; i < header.size(); i += 2) {
    sum += uint32_t{header[i]} * 256 + header[i + 1];
  }
  sum = (sum & 0xffff) + (sum >> 16);
  EthernetFrame frame;
  ASSERT_TRUE(ParseEthernet(bytes, &frame));
  FillChecksums(frame, bytes.data());
  EXPECT_EQ(LoadBe16(&bytes[24]), static_cast<uint16_t>(~sum));
}

TEST(EthernetTest, UdpChecksumZeroMeansNone) {
  Bytes bytes = UdpFrame("192.0.2.1", "192.0.2.2");
  EthernetFrame frame;
  ASSERT_TRUE(ParseEthernet(bytes, &frame));
  EXPECT_TRUE(Ipv4ChecksumsAreGood(frame));
  StoreBe16(&bytes[40], 0x1234);
  EXPECT_FALSE(Ipv4ChecksumsAreGood(frame));
}

TEST(EthernetTest, SegmentsCountUpAndOnlyTheLastOnePushes) {
  constexpr uint8_t kFin = 1;
  constexpr uint8_t kPush = 8;
  constexpr uint8_t kAck = 16;
  constexpr uint8_t kCwr = 128;
  for (const bool v6 : {false, true}) {
    const Bytes header = TcpFrame(v6, kFin | kPush | kAck | kCwr, 0);
    EthernetFrame frame;
    ASSERT_TRUE(ParseEthernet(header, &frame));
    ASSERT_TRUE(IsTcpHeader(frame, header));
    for (const uint16_t index : {0, 1, 2}) {
      const size_t payload = index == 2 ? 7 : 100;
      Bytes segment = header;
      segment.resize(header.size() + payload, 0xab);
      FinishTcpSegment(frame, segment, index * 100u, index, index == 2);
      EthernetFrame made;
      ASSERT_TRUE(ParseEthernet(segment, &made));
      ASSERT_EQ(made.layer4, Layer4::kTcp);
      EXPECT_EQ(made.end, segment.size());
      const uint8_t* const tcp = made.transport_header();
      EXPECT_EQ(LoadBe32(tcp + 4), 0xfffffff0 + index * 100u);
      EXPECT_EQ(tcp[13], kAck | (index == 2 ? kFin | kPush : 0) |
                             (index == 0 ? kCwr : 0));
      if (!v6) {
        EXPECT_TRUE(Ipv4ChecksumsAreGood(made));
        EXPECT_EQ(LoadBe16(made.ip_header() + 4),
                  static_cast<uint16_t>(0xffff + index));
      }
    }
  }
}

TEST(EthernetTest, SegmentsOfUdpAreDatagrams) {
  const Bytes header = UdpFrame("192.0.2.1", "192.0.2.2");
  EthernetFrame frame;
  ASSERT_TRUE(ParseEthernet(header, &frame));
  ASSERT_EQ(frame.layer4, Layer4::kUdp);
  const uint16_t identification = LoadBe16(frame.ip_header() + 4);
  for (const uint16_t index : {0, 1}) {
    Bytes segment(header.begin(),
                  header.begin() + static_cast<long>(frame.transport + 8));
    segment.resize(segment.size() + 9, 0xab);
    FinishUdpSegment(frame, segment, index);
    EthernetFrame made;
    ASSERT_TRUE(ParseEthernet(segment, &made));
    ASSERT_EQ(made.layer4, Layer4::kUdp);
    EXPECT_EQ(made.end, segment.size());
    EXPECT_EQ(LoadBe16(made.transport_header() + 4), 17);
    EXPECT_EQ(LoadBe16(made.ip_header() + 4), identification + index);
    EXPECT_TRUE(Ipv4ChecksumsAreGood(made));
  }
}

TEST(EthernetTest, SegmentsAreMadeOfWholeTcpHeadersOnly) {
  Bytes header = TcpFrame(false, 0, 0);
  EthernetFrame frame;
  ASSERT_TRUE(ParseEthernet(header, &frame));
  EXPECT_TRUE(IsTcpHeader(frame, header));
  header.push_back(0);  // payload within the header
  ASSERT_TRUE(ParseEthernet(header, &frame));
  EXPECT_FALSE(IsTcpHeader(frame, header));
  const Bytes udp = UdpFrame("192.0.2.1", "192.0.2.2");
  ASSERT_TRUE(ParseEthernet(udp, &frame));
  EXPECT_FALSE(IsTcpHeader(frame, udp));
}

}  // namespace
}  // namespace wire
