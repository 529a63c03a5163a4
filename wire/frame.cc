#include "wire/frame.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "wire/bytes.h"
#include "wire/ip_numbers.h"

namespace wire {
namespace {

constexpr uint16_t kEtherRoceV1 = 0x8915;
constexpr size_t kEthernetSize = 14;

bool IsVlanTag(uint16_t ether_type) {
  return ether_type == 0x8100 || ether_type == 0x88a8 || ether_type == 0x9100;
}

FrameKind DecodeUdp(std::span<const uint8_t> bytes, size_t ip_payload_size,
                    Frame* out) {
  if (ip_payload_size < kUdpSize) return FrameKind::kMalformed;
  if (bytes.size() < kUdpSize) return FrameKind::kTruncated;
  const size_t size = LoadBe16(bytes.data() + 4);
  if (size != ip_payload_size) return FrameKind::kMalformed;
  out->headers.src_port = LoadBe16(bytes.data());
  out->headers.dst_port = LoadBe16(bytes.data() + 2);
  out->headers.udp_checksum = LoadBe16(bytes.data() + 6);
  out->udp_payload_size = size - kUdpSize;
  out->udp_payload =
      bytes.first(std::min(size, bytes.size())).subspan(kUdpSize);
  return FrameKind::kUdp;
}

FrameKind DecodeIpv4(std::span<const uint8_t> bytes, Frame* out) {
  if (bytes.size() < kIpv4Size) return FrameKind::kTruncated;
  const uint8_t* p = bytes.data();
  const size_t header_size = (p[0] & 0xf) * 4;
  const size_t total = LoadBe16(p + 2);
  if (p[0] >> 4 != 4 || header_size < kIpv4Size || total < header_size) {
    return FrameKind::kMalformed;
  }
  const uint16_t flags = LoadBe16(p + 6);
  if ((flags & 0x8000) != 0) return FrameKind::kMalformed;
  if ((flags & 0x3fff) != 0) return FrameKind::kFragment;
  if (p[9] != kProtocolUdp) return FrameKind::kOther;
  if (bytes.size() < header_size) return FrameKind::kTruncated;
  uint32_t address;
  std::memcpy(&address, p + 12, 4);
  out->headers.src = IpAddress::FromV4(address);
  std::memcpy(&address, p + 16, 4);
  out->headers.dst = IpAddress::FromV4(address);
  out->headers.tos = p[1];
  out->headers.ip_id = LoadBe16(p + 4);
  out->headers.df = (p[6] & 0x40) != 0;
  out->headers.ttl = p[8];
  return DecodeUdp(bytes.subspan(header_size), total - header_size, out);
}

FrameKind DecodeIpv6(std::span<const uint8_t> bytes, Frame* out) {
  if (bytes.size() < kIpv6Size) return FrameKind::kTruncated;
  const uint8_t* p = bytes.data();
  if (p[0] >> 4 != 6) return FrameKind::kMalformed;
  if (p[6] == kProtocolFragment) return FrameKind::kFragment;
  if (p[6] != kProtocolUdp) return FrameKind::kOther;
  const uint32_t first_word = LoadBe32(p);
  out->headers.tos = static_cast<uint8_t>(first_word >> 20);
  out->headers.flow_label = first_word & 0xfffff;
  out->headers.ttl = p[7];
  out->headers.src = IpAddress::FromGid(p + 8);
  out->headers.dst = IpAddress::FromGid(p + 24);
  return DecodeUdp(bytes.subspan(kIpv6Size), LoadBe16(p + 4), out);
}

FrameKind DecodeIp(std::span<const uint8_t> bytes, Frame* out) {
  if (bytes.empty()) return FrameKind::kTruncated;
  switch (bytes[0] >> 4) {
    case 4:
      return DecodeIpv4(bytes, out);
    case 6:
      return DecodeIpv6(bytes, out);
    default:
      return FrameKind::kOther;
  }
}

// `bytes` start after the Ethertype; VLAN tags may follow.
FrameKind DecodeEtherType(uint16_t type, std::span<const uint8_t> bytes,
                          Frame* out) {
  while (IsVlanTag(type)) {
    if (bytes.size() < 4) return FrameKind::kTruncated;
    out->headers.vlan = LoadBe16(bytes.data()) & 0xfff;
    type = LoadBe16(bytes.data() + 2);
    bytes = bytes.subspan(4);
  }
  switch (type) {
    case kEtherIpv4:
      return DecodeIpv4(bytes, out);
    case kEtherIpv6:
      return DecodeIpv6(bytes, out);
    case kEtherRoceV1:
      return FrameKind::kRoceV1;
    default:
      return FrameKind::kOther;
  }
}

uint16_t Checksum(uint64_t sum) {
  return static_cast<uint16_t>(~FoldIpSum(sum));
}

bool IsV4(const FrameHeaders& h) { return h.src.is_v4() && h.dst.is_v4(); }

void EmitIpv4(const FrameHeaders& h, size_t payload_size, uint8_t* p) {
  p[0] = 0x45;
  p[1] = h.tos;
  StoreBe16(p + 2, static_cast<uint16_t>(kIpv4Size + payload_size));
  StoreBe16(p + 4, h.ip_id);
  StoreBe16(p + 6, h.df ? 0x4000 : 0);
  p[8] = h.ttl;
  p[9] = kProtocolUdp;
  StoreBe16(p + 10, 0);
  std::memcpy(p + 12, h.src.bytes.data() + 12, 4);
  std::memcpy(p + 16, h.dst.bytes.data() + 12, 4);
  StoreBe16(p + 10, Checksum(IpSum({p, kIpv4Size})));
}

void EmitIpv6(const FrameHeaders& h, size_t payload_size, uint8_t* p) {
  StoreBe32(p, 6u << 28 | uint32_t{h.tos} << 20 | (h.flow_label & 0xfffff));
  StoreBe16(p + 4, static_cast<uint16_t>(payload_size));
  p[6] = kProtocolUdp;
  p[7] = h.ttl;
  std::memcpy(p + 8, h.src.bytes.data(), 16);
  std::memcpy(p + 24, h.dst.bytes.data(), 16);
}

}  // namespace

bool IsKnownLinkType(int link_type) {
  switch (static_cast<LinkType>(link_type)) {
    case LinkType::kNull:
    case LinkType::kEthernet:
    case LinkType::kRaw:
    case LinkType::kRawOpenBsd:
    case LinkType::kRawInFiles:
    case LinkType::kLoop:
    case LinkType::kLinuxSll:
    case LinkType::kIpv4:
    case LinkType::kIpv6:
    case LinkType::kLinuxSll2:
      return true;
  }
  return false;
}

FrameKind DecodeFrame(int link_type, std::span<const uint8_t> captured,
                      Frame* out) {
  *out = Frame();
  const uint8_t* p = captured.data();
  const size_t size = captured.size();
  switch (static_cast<LinkType>(link_type)) {
    case LinkType::kEthernet:
      if (size < kEthernetSize) return FrameKind::kTruncated;
      std::memcpy(out->headers.dst_mac.data(), p, 6);
      std::memcpy(out->headers.src_mac.data(), p + 6, 6);
      return DecodeEtherType(LoadBe16(p + 12), captured.subspan(kEthernetSize),
                             out);
    case LinkType::kLinuxSll:
      if (size < 16) return FrameKind::kTruncated;
      return DecodeEtherType(LoadBe16(p + 14), captured.subspan(16), out);
    case LinkType::kLinuxSll2:
      if (size < 20) return FrameKind::kTruncated;
      return DecodeEtherType(LoadBe16(p), captured.subspan(20), out);
    case LinkType::kNull:
    case LinkType::kLoop:
      // Four bytes of address family with varying numbers and byte order;
      // DecodeIp uses the IP version instead.
      if (size < 4) return FrameKind::kTruncated;
      return DecodeIp(captured.subspan(4), out);
    case LinkType::kRaw:
    case LinkType::kRawOpenBsd:
    case LinkType::kRawInFiles:
    case LinkType::kIpv4:
    case LinkType::kIpv6:
      return DecodeIp(captured, out);
  }
  return FrameKind::kOther;
}

size_t EmitIpUdp(const FrameHeaders& h, size_t udp_payload_size, uint8_t* out) {
  const bool v4 = IsV4(h);
  const size_t udp_size = kUdpSize + udp_payload_size;
  assert(udp_size <= 65515);
  if (v4) {
    EmitIpv4(h, udp_size, out);
  } else {
    EmitIpv6(h, udp_size, out);
  }
  const size_t udp_at = v4 ? kIpv4Size : kIpv6Size;
  StoreBe16(out + udp_at, h.src_port);
  StoreBe16(out + udp_at + 2, h.dst_port);
  StoreBe16(out + udp_at + 4, static_cast<uint16_t>(udp_size));
  StoreBe16(out + udp_at + 6, h.udp_checksum);
  return udp_at + kUdpSize;
}

uint16_t UdpChecksum(const FrameHeaders& h,
                     std::span<const uint8_t> udp_payload) {
  const uint64_t udp_size = kUdpSize + udp_payload.size();
  // The length counts twice: in the pseudo-header and in the UDP header.
  uint64_t sum = kProtocolUdp + 2 * udp_size + h.src_port + h.dst_port;
  const size_t skip = IsV4(h) ? 12 : 0;
  sum += IpSum(std::span(h.src.bytes).subspan(skip));
  sum += IpSum(std::span(h.dst.bytes).subspan(skip));
  const uint16_t checksum = Checksum(sum + IpSum(udp_payload));
  return checksum != 0 ? checksum : 0xffff;
}

void EmitCooked(bool sent, bool v4, uint8_t* out) {
  std::memset(out, 0, kCookedSize);
  StoreBe16(out, sent ? 4 : 0);
  StoreBe16(out + 2, 1);  // ARPHRD_ETHER, so that an Ethertype follows
  StoreBe16(out + 14, v4 ? kEtherIpv4 : kEtherIpv6);
}

std::vector<uint8_t> BuildFrame(const FrameHeaders& h,
                                std::span<const uint8_t> udp_payload) {
  const size_t ip_at = kEthernetSize + (h.vlan ? 4 : 0);
  std::vector<uint8_t> frame(ip_at + kMaxIpUdpSize);
  uint8_t* const p = frame.data();
  std::memcpy(p, h.dst_mac.data(), 6);
  std::memcpy(p + 6, h.src_mac.data(), 6);
  if (h.vlan) {
    StoreBe16(p + 12, 0x8100);
    StoreBe16(p + 14, *h.vlan & 0xfff);
  }
  StoreBe16(p + ip_at - 2, IsV4(h) ? kEtherIpv4 : kEtherIpv6);
  frame.resize(ip_at + EmitIpUdp(h, udp_payload.size(), p + ip_at));
  frame.insert(frame.end(), udp_payload.begin(), udp_payload.end());
  return frame;
}

std::vector<uint8_t> BuildPacket(Headers headers,
                                 std::span<const uint8_t> payload,
                                 const IcrcFlow& flow, uint16_t ip_id,
                                 bool df) {
  headers.bth.pad_count = PadCount(payload.size());
  std::array<uint8_t, kMaxHeaderSize> bytes;
  const size_t size = EmitHeaders(headers, bytes.data());
  return BuildPacket(std::span<const uint8_t>(bytes).first(size), payload, flow,
                     ip_id, df);
}

std::vector<uint8_t> BuildPacket(std::span<const uint8_t> headers,
                                 std::span<const uint8_t> payload,
                                 const IcrcFlow& flow, uint16_t ip_id,
                                 bool df) {
  std::vector<uint8_t> packet(headers.begin(), headers.end());
  packet.insert(packet.end(), payload.begin(), payload.end());
  packet.resize(packet.size() + PadCount(payload.size()) + kIcrcSize);
  flow.Store(packet, ip_id, df);
  return packet;
}

std::optional<size_t> FindSegmentSize(const IcrcFlow& flow,
                                      std::span<const uint8_t> udp_payload,
                                      uint16_t ip_id, bool df) {
  if (flow.Verify(udp_payload, ip_id, df)) return udp_payload.size();
  // Largest MTU with the longest headers.
  constexpr size_t kLargest = kMaxHeaderSize + 4096 + kIcrcSize;
  for (size_t size = kBthSize + kIcrcSize;
       size < udp_payload.size() && size <= kLargest; size += 4) {
    if (flow.Verify(udp_payload.first(size), ip_id, df)) return size;
  }
  return std::nullopt;
}

}  // namespace wire
