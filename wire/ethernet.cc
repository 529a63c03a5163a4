#include "wire/ethernet.h"

#include <algorithm>
#include <cstring>

#include "wire/bytes.h"
#include "wire/ip_numbers.h"

namespace wire {
namespace {

constexpr size_t kTcpSize = 20;
constexpr uint8_t kTcp = 6;
// IPv6 extension headers that may precede the transport header.
constexpr uint8_t kHopByHop = 0;
constexpr uint8_t kRouting = 43;
constexpr uint8_t kDestinationOptions = 60;

constexpr size_t kTcpChecksum = 16;
constexpr size_t kUdpChecksum = 6;
constexpr size_t kIpv4Checksum = 10;

bool IsVlanTag(uint16_t ether_type) {
  return ether_type == 0x8100 || ether_type == 0x88a8;
}

void ParseTransport(EthernetFrame* out) {
  if (out->is_fragment || out->transport > out->end) return;
  const size_t left = out->end - out->transport;
  if (out->protocol == kTcp && left >= kTcpSize) {
    const size_t header = size_t{out->transport_header()[12]} / 16 * 4;
    if (header >= kTcpSize && header <= left) out->layer4 = Layer4::kTcp;
  } else if (out->protocol == kProtocolUdp && left >= kUdpSize) {
    out->layer4 = Layer4::kUdp;
  }
}

bool ParseIpv4(size_t left, EthernetFrame* out) {
  if (left < kIpv4Size) return false;
  const uint8_t* const p = out->ip_header();
  const size_t header = size_t{p[0]} % 16 * 4;
  const size_t total = LoadBe16(p + 2);
  if (p[0] >> 4 != 4 || header < kIpv4Size || header > left) return false;
  out->layer3 = Layer3::kIpv4;
  out->protocol = p[9];
  out->is_fragment = (LoadBe16(p + 6) & 0x3fff) != 0;
  out->transport = out->ip + header;
  // A larger length means a truncated datagram, or one to be segmented.
  out->end = out->ip + (total < header ? left : std::min(total, left));
  ParseTransport(out);
  return true;
}

bool ParseIpv6(size_t left, EthernetFrame* out) {
  if (left < kIpv6Size) return false;
  const uint8_t* const p = out->ip_header();
  if (p[0] >> 4 != 6) return false;
  out->layer3 = Layer3::kIpv6;
  const size_t total = size_t{LoadBe16(p + 4)} + kIpv6Size;
  out->end = out->ip + std::min(total, left);
  out->protocol = p[6];
  out->transport = out->ip + kIpv6Size;
  while (out->protocol == kHopByHop || out->protocol == kRouting ||
         out->protocol == kDestinationOptions ||
         out->protocol == kProtocolFragment) {
    if (out->end < out->transport + 8) return true;
    const uint8_t* const extension = out->transport_header();
    if (out->protocol == kProtocolFragment) {
      out->is_fragment = true;
      out->protocol = extension[0];
      return true;
    }
    out->protocol = extension[0];
    out->transport += (size_t{extension[1]} + 1) * 8;
    if (out->transport > out->end) return true;
  }
  ParseTransport(out);
  return true;
}

// Sum over pseudo-header, transport header and payload: 0xffff if the checksum
// in it is right.
uint16_t TransportSum(const EthernetFrame& frame) {
  const size_t length = frame.end - frame.transport;
  const uint8_t* const ip = frame.ip_header();
  const std::span<const uint8_t> addresses = frame.layer3 == Layer3::kIpv4
                                                 ? std::span(ip + 12, 8)
                                                 : std::span(ip + 8, 32);
  const uint64_t pseudo = IpSum(addresses, uint64_t{length} + frame.protocol);
  return FoldIpSum(IpSum({frame.transport_header(), length}, pseudo));
}

}  // namespace

bool ParseIp(std::span<const uint8_t> bytes, size_t offset, uint16_t ether_type,
             EthernetFrame* out) {
  out->bytes = bytes;
  out->ether_type = ether_type;
  out->ip = offset;
  out->end = bytes.size();
  if (bytes.size() < offset) return false;
  const size_t left = bytes.size() - offset;
  if (ether_type == kEtherIpv4) return ParseIpv4(left, out);
  return ether_type == kEtherIpv6 && ParseIpv6(left, out);
}

bool ParseEthernet(std::span<const uint8_t> bytes, EthernetFrame* out) {
  *out = {};
  out->bytes = bytes;
  if (bytes.size() < kEthernetHeaderSize) return false;
  size_t at = 12;
  uint16_t type = LoadBe16(bytes.data() + at);
  while (IsVlanTag(type) && bytes.size() >= at + kVlanTagSize + 2) {
    if (!out->has_vlan) out->vlan_tag = LoadBe16(bytes.data() + at + 2);
    out->has_vlan = true;
    at += kVlanTagSize;
    type = LoadBe16(bytes.data() + at);
  }
  ParseIp(bytes, at + 2, type, out);
  return true;
}

bool Ipv4ChecksumsAreGood(const EthernetFrame& frame) {
  if (frame.layer3 != Layer3::kIpv4) return false;
  const size_t header = size_t{frame.ip_header()[0]} % 16 * 4;
  if (FoldIpSum(IpSum({frame.ip_header(), header})) != 0xffff) return false;
  switch (frame.layer4) {
    case Layer4::kOther:
      return true;
    case Layer4::kUdp:
      if (LoadBe16(frame.transport_header() + kUdpChecksum) == 0) return true;
      [[fallthrough]];
    case Layer4::kTcp:
      return TransportSum(frame) == 0xffff;
  }
  return false;
}

void FillChecksums(const EthernetFrame& frame, uint8_t* bytes) {
  if (frame.layer4 != Layer4::kOther) {
    const bool udp = frame.layer4 == Layer4::kUdp;
    uint8_t* const at =
        bytes + frame.transport + (udp ? kUdpChecksum : kTcpChecksum);
    StoreBe16(at, 0);
    const auto sum = static_cast<uint16_t>(~TransportSum(frame));
    // 0 would mean "no checksum" (RFC 768).
    StoreBe16(at, udp && sum == 0 ? 0xffff : sum);
  }
  if (frame.layer3 == Layer3::kIpv4) {
    uint8_t* const ip = bytes + frame.ip;
    StoreBe16(ip + kIpv4Checksum, 0);
    const uint16_t sum = FoldIpSum(IpSum({ip, size_t{ip[0]} % 16 * 4}));
    StoreBe16(ip + kIpv4Checksum, static_cast<uint16_t>(~sum));
  }
}

bool IsTcpHeader(const EthernetFrame& frame, std::span<const uint8_t> header) {
  if (frame.layer3 == Layer3::kOther || frame.is_fragment ||
      frame.protocol != kTcp || header.size() < frame.transport + kTcpSize) {
    return false;
  }
  return size_t{header[frame.transport + 12]} / 16 * 4 ==
         header.size() - frame.transport;
}

namespace {

void FinishIp(const EthernetFrame& frame, std::span<uint8_t> bytes,
              uint16_t index) {
  uint8_t* const ip = bytes.data() + frame.ip;
  if (frame.layer3 == Layer3::kIpv4) {
    StoreBe16(ip + 2, static_cast<uint16_t>(bytes.size() - frame.ip));
    StoreBe16(ip + 4, static_cast<uint16_t>(LoadBe16(ip + 4) + index));
  } else {
    StoreBe16(ip + 4,
              static_cast<uint16_t>(bytes.size() - frame.ip - kIpv6Size));
  }
}

void FillSegmentChecksums(const EthernetFrame& frame, Layer4 layer4,
                          std::span<uint8_t> bytes) {
  EthernetFrame segment = frame;
  segment.bytes = bytes;
  segment.end = bytes.size();
  segment.layer4 = layer4;
  FillChecksums(segment, bytes.data());
}

}  // namespace

void FinishTcpSegment(const EthernetFrame& frame, std::span<uint8_t> bytes,
                      uint32_t offset, uint16_t index, bool is_last) {
  constexpr uint8_t kFinOrPush = 0x01 | 0x08;
  constexpr uint8_t kCwr = 0x80;
  FinishIp(frame, bytes, index);
  uint8_t* const tcp = bytes.data() + frame.transport;
  StoreBe32(tcp + 4, LoadBe32(tcp + 4) + offset);
  if (!is_last) tcp[13] &= static_cast<uint8_t>(~kFinOrPush);
  if (index != 0) tcp[13] &= static_cast<uint8_t>(~kCwr);
  FillSegmentChecksums(frame, Layer4::kTcp, bytes);
}

void FinishUdpSegment(const EthernetFrame& frame, std::span<uint8_t> bytes,
                      uint16_t index) {
  FinishIp(frame, bytes, index);
  StoreBe16(bytes.data() + frame.transport + 4,
            static_cast<uint16_t>(bytes.size() - frame.transport));
  FillSegmentChecksums(frame, Layer4::kUdp, bytes);
}

}  // namespace wire
