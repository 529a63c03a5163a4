#include "wire/frame.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace wire {
namespace {

constexpr int kEthernet = static_cast<int>(LinkType::kEthernet);

FrameHeaders V4Headers() {
  FrameHeaders h;
  h.src = *IpAddress::Parse("192.0.2.1");
  h.dst = *IpAddress::Parse("192.0.2.2");
  h.src_port = 49441;
  h.tos = 0x6a;
  h.ttl = 63;
  h.ip_id = 0x1234;
  return h;
}

FrameHeaders V6Headers() {
  FrameHeaders h;
  h.src = *IpAddress::Parse("fe80::1");
  h.dst = *IpAddress::Parse("fe80::2");
  h.src_port = 49441;
  h.tos = 0x6a;
  h.ttl = 63;
  h.flow_label = 0x54321;
  h.udp_checksum = 0xabcd;
  return h;
}

std::vector<uint8_t> Packet(const FrameHeaders& frame) {
  Headers h;
  h.bth.opcode = 0x04;
  return BuildPacket(h, std::vector<uint8_t>(13, 'x'), frame.icrc_flow(),
                     frame.ip_id, frame.df);
}

// Replaces the Ethernet header of `frame` by `link`.
std::vector<uint8_t> Prepend(std::vector<uint8_t> link,
                             const std::vector<uint8_t>& frame) {
  link.insert(link.end(), frame.begin() + 14, frame.end());
  return link;
}

void ExpectSame(const FrameHeaders& a, const FrameHeaders& b) {
  EXPECT_EQ(a.src, b.src);
  EXPECT_EQ(a.dst, b.dst);
  EXPECT_EQ(a.src_port, b.src_port);
  EXPECT_EQ(a.dst_port, b.dst_port);
  EXPECT_EQ(a.tos, b.tos);
  EXPECT_EQ(a.ttl, b.ttl);
  EXPECT_EQ(a.ip_id, b.ip_id);
  EXPECT_EQ(a.df, b.df);
  EXPECT_EQ(a.flow_label, b.flow_label);
  EXPECT_EQ(a.udp_checksum, b.udp_checksum);
  EXPECT_EQ(a.vlan, b.vlan);
}

TEST(FrameTest, UdpChecksumByHand) {
  // c000 0201 c000 0202 0011 000b, c121 12b7 000b, 6162 6300.
  const std::vector<uint8_t> payload = {'a', 'b', 'c'};
  EXPECT_EQ(UdpChecksum(V4Headers(), payload), 0xe398);
  // These bytes make the sum 0, which means "no checksum": sent as 0xffff.
  const std::vector<uint8_t> fills_up = {0xa7, 0xfd};
  EXPECT_EQ(UdpChecksum(V4Headers(), fills_up), 0xffff);
}

TEST(FrameTest, CookedHeaderBytes) {
  uint8_t header[kCookedSize];
  std::memset(header, 0xff, sizeof(header));
  EmitCooked(/*sent=*/true, /*v4=*/true, header);
  const uint8_t sent[kCookedSize] = {0, 4, 0, 1, 0, 0, 0, 0,
                                     0, 0, 0, 0, 0, 0, 8, 0};
  EXPECT_EQ(std::memcmp(header, sent, sizeof(sent)), 0);
  EmitCooked(/*sent=*/false, /*v4=*/false, header);
  const uint8_t received[kCookedSize] = {0, 0, 0, 1, 0, 0, 0,    0,
                                         0, 0, 0, 0, 0, 0, 0x86, 0xdd};
  EXPECT_EQ(std::memcmp(header, received, sizeof(received)), 0);
}

TEST(FrameTest, Ipv4HeaderBytes) {
  const std::vector<uint8_t> frame = BuildFrame(V4Headers(), {});
  const std::vector<uint8_t> expected = {
      2,  0,    0,    0,    0,    2, 2,  0,    0,    0,    0,
      1,  8,    0,    0x45, 0x6a, 0, 28, 0x12, 0x34, 0x40, 0,
      63, 17,   0x65, 0x2b, 192,  0, 2,  1,    192,  0,    2,
      2,  0xc1, 0x21, 0x12, 0xb7, 0, 8,  0,    0};
  // The sum of the header including its checksum is 0xffff.
  uint32_t sum = 0;
  for (size_t i = 14; i < 34; i += 2) sum += frame[i] << 8 | frame[i + 1];
  EXPECT_EQ((sum & 0xffff) + (sum >> 16), 0xffffu);
  std::vector<uint8_t> got = frame;
  got[24] = expected[24];
  got[25] = expected[25];
  EXPECT_EQ(got, expected);
}

TEST(FrameTest, RoundTrips) {
  for (FrameHeaders headers : {V4Headers(), V6Headers()}) {
    for (const bool tagged : {false, true}) {
      if (tagged) headers.vlan = 7;
      const std::vector<uint8_t> packet = Packet(headers);
      Frame frame;
      const std::vector<uint8_t> bytes = BuildFrame(headers, packet);
      ASSERT_EQ(DecodeFrame(kEthernet, bytes, &frame), FrameKind::kUdp);
      ExpectSame(frame.headers, headers);
      EXPECT_TRUE(frame.headers.is_rocev2());
      EXPECT_FALSE(frame.is_truncated());
      EXPECT_EQ(std::vector<uint8_t>(frame.udp_payload.begin(),
                                     frame.udp_payload.end()),
                packet);
      EXPECT_EQ(BuildFrame(frame.headers, frame.udp_payload), bytes);
      EXPECT_TRUE(frame.headers.icrc_flow().Verify(frame.udp_payload,
                                                   frame.headers.ip_id));
    }
  }
}

TEST(FrameTest, EveryLinkType) {
  const FrameHeaders headers = V4Headers();
  const std::vector<uint8_t> frame = BuildFrame(headers, Packet(headers));
  std::vector<uint8_t> sll(16);
  sll[14] = 0x08;
  std::vector<uint8_t> sll2(20);
  sll2[0] = 0x08;
  const std::pair<int, std::vector<uint8_t>> cases[] = {
      {0, Prepend({2, 0, 0, 0}, frame)}, {108, Prepend({0, 0, 0, 2}, frame)},
      {12, Prepend({}, frame)},          {14, Prepend({}, frame)},
      {101, Prepend({}, frame)},         {228, Prepend({}, frame)},
      {113, Prepend(sll, frame)},        {276, Prepend(sll2, frame)},
  };
  for (const auto& [link_type, bytes] : cases) {
    EXPECT_TRUE(IsKnownLinkType(link_type));
    Frame decoded;
    ASSERT_EQ(DecodeFrame(link_type, bytes, &decoded), FrameKind::kUdp)
        << link_type;
    ExpectSame(decoded.headers, headers);
  }
  const std::vector<uint8_t> v6 =
      Prepend({}, BuildFrame(V6Headers(), Packet(V6Headers())));
  Frame decoded;
  EXPECT_EQ(DecodeFrame(229, v6, &decoded), FrameKind::kUdp);
  ExpectSame(decoded.headers, V6Headers());
  EXPECT_FALSE(IsKnownLinkType(105)) << "IEEE 802.11";
}

TEST(FrameTest, TwoVlanTags) {
  const FrameHeaders headers = V4Headers();
  const std::vector<uint8_t> frame = BuildFrame(headers, Packet(headers));
  std::vector<uint8_t> tagged(frame.begin(), frame.begin() + 12);
  tagged.insert(tagged.end(), {0x88, 0xa8, 0, 5, 0x81, 0, 0xe0, 6, 8, 0});
  Frame decoded;
  ASSERT_EQ(DecodeFrame(kEthernet, Prepend(tagged, frame), &decoded),
            FrameKind::kUdp);
  EXPECT_EQ(decoded.headers.vlan, 6) << "the inner one, without priority";
}

TEST(FrameTest, LinkLayerPaddingIsNotPayload) {
  const FrameHeaders headers = V4Headers();
  std::vector<uint8_t> bytes = BuildFrame(headers, Packet(headers));
  bytes.resize(bytes.size() + 9);
  Frame frame;
  ASSERT_EQ(DecodeFrame(kEthernet, bytes, &frame), FrameKind::kUdp);
  EXPECT_EQ(frame.udp_payload.size(), Packet(headers).size());
}

TEST(FrameTest, TruncatedAtEveryLength) {
  for (const FrameHeaders& headers : {V4Headers(), V6Headers()}) {
    const std::vector<uint8_t> packet = Packet(headers);
    const std::vector<uint8_t> bytes = BuildFrame(headers, packet);
    const size_t headers_size = bytes.size() - packet.size();
    for (size_t size = 0; size < bytes.size(); ++size) {
      const std::vector<uint8_t> cut(bytes.begin(), bytes.begin() + size);
      Frame frame;
      const FrameKind kind = DecodeFrame(kEthernet, cut, &frame);
      if (size < headers_size) {
        EXPECT_EQ(kind, FrameKind::kTruncated) << size;
      } else {
        ASSERT_EQ(kind, FrameKind::kUdp) << size;
        EXPECT_TRUE(frame.is_truncated());
        EXPECT_EQ(frame.udp_payload.size(), size - headers_size);
        EXPECT_EQ(frame.udp_payload_size, packet.size());
      }
    }
  }
}

TEST(FrameTest, OtherKinds) {
  const FrameHeaders headers = V4Headers();
  const std::vector<uint8_t> good = BuildFrame(headers, Packet(headers));
  const auto kind_with = [&good](size_t at, std::vector<uint8_t> bytes) {
    std::vector<uint8_t> frame = good;
    std::copy(bytes.begin(), bytes.end(), frame.begin() + at);
    Frame out;
    return DecodeFrame(kEthernet, frame, &out);
  };
  EXPECT_EQ(kind_with(12, {0x89, 0x15}), FrameKind::kRoceV1);
  EXPECT_EQ(kind_with(12, {0x08, 0x06}), FrameKind::kOther) << "ARP";
  EXPECT_EQ(kind_with(23, {6}), FrameKind::kOther) << "TCP";
  EXPECT_EQ(kind_with(20, {0x20}), FrameKind::kFragment);
  EXPECT_EQ(kind_with(20, {0x00, 0x01}), FrameKind::kFragment);
  EXPECT_EQ(kind_with(14, {0x65}), FrameKind::kMalformed) << "version";
  EXPECT_EQ(kind_with(14, {0x44}), FrameKind::kMalformed) << "header length";
  EXPECT_EQ(kind_with(16, {0, 19}), FrameKind::kMalformed) << "total length";
  EXPECT_EQ(kind_with(16, {0, 27}), FrameKind::kMalformed) << "no UDP header";
  EXPECT_EQ(kind_with(38, {0, 7}), FrameKind::kMalformed) << "UDP length";
  EXPECT_EQ(kind_with(38, {0x7f, 0}), FrameKind::kMalformed) << "UDP length";
}

TEST(FrameTest, RandomBytesNeverCrash) {
  std::mt19937 random(1);
  const int link_types[] = {0, 1, 12, 101, 113, 228, 229, 276, 999};
  const FrameHeaders headers[] = {V4Headers(), V6Headers()};
  for (int i = 0; i < 200'000; ++i) {
    std::vector<uint8_t> bytes;
    const FrameHeaders& h = headers[i % 2];
    if (i % 3 == 0) {
      bytes.resize(random() % 80);
      for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    } else {
      bytes = BuildFrame(h, Packet(h));
      bytes[random() % bytes.size()] = static_cast<uint8_t>(random());
      bytes.resize(random() % (bytes.size() + 1));
    }
    bytes.shrink_to_fit();
    Frame frame;
    if (DecodeFrame(link_types[random() % 9], bytes, &frame) ==
        FrameKind::kUdp) {
      EXPECT_LE(frame.udp_payload.size(), bytes.size());
      EXPECT_LE(frame.udp_payload.size(), frame.udp_payload_size);
    }
  }
}

TEST(BuildPacketTest, PadsToFourBytes) {
  const IcrcFlow flow = V4Headers().icrc_flow();
  for (size_t size = 0; size < 9; ++size) {
    Headers h;
    h.bth.opcode = 0x04;
    const std::vector<uint8_t> packet =
        BuildPacket(h, std::vector<uint8_t>(size, 'x'), flow, 9);
    EXPECT_EQ(packet.size() % 4, 0u);
    PacketView view;
    ASSERT_EQ(PacketView::Parse(packet, &view), ParseError::kOk);
    EXPECT_EQ(view.payload().size(), size);
    EXPECT_TRUE(flow.Verify(packet, 9));
  }
}

TEST(FindSegmentSizeTest, FindsTheSizeOfMergedPackets) {
  const FrameHeaders headers = V4Headers();
  const IcrcFlow flow = headers.icrc_flow();
  Headers h;
  h.bth.opcode = 0x01;
  std::vector<uint8_t> together;
  for (uint16_t i = 0; i < 3; ++i) {
    const std::vector<uint8_t> payload(i == 2 ? 5 : 1024, 'x');
    const std::vector<uint8_t> packet = BuildPacket(h, payload, flow, i);
    together.insert(together.end(), packet.begin(), packet.end());
  }
  EXPECT_EQ(FindSegmentSize(flow, together, 0), kBthSize + 1024 + kIcrcSize);
  EXPECT_EQ(FindSegmentSize(flow, std::span(together).first(1040), 0), 1040u);
  together[20] ^= 1;
  EXPECT_FALSE(FindSegmentSize(flow, together, 0));
}

}  // namespace
}  // namespace wire
