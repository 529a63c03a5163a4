#include "wire/grh.h"

#include <cstring>

#include "wire/bytes.h"
#include "wire/ip_numbers.h"

namespace wire {
namespace {

constexpr uint16_t kDontFragment = 0x4000;

uint16_t Checksum(const uint8_t* header) {
  uint32_t sum = 0;
  for (size_t i = 0; i < kIpv4Size; i += 2) sum += LoadBe16(header + i);
  sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~(sum + (sum >> 16)));
}

}  // namespace

void EmitGrh(const Grh& grh, size_t udp_payload, uint8_t* out) {
  std::memset(out, 0, kGrhSize);
  const size_t udp = kUdpSize + udp_payload;
  if (!grh.source.is_v4()) {
    StoreBe32(out, 6u << 28 | uint32_t{grh.traffic_class} << 20 |
                       (grh.flow_label & 0xfffff));
    StoreBe16(out + 4, static_cast<uint16_t>(udp));
    out[6] = kProtocolUdp;
    out[7] = grh.hop_limit;
    std::memcpy(out + 8, grh.source.bytes.data(), 16);
    std::memcpy(out + 24, grh.destination.bytes.data(), 16);
    return;
  }
  uint8_t* const ip = out + kGrhV4Offset;
  ip[0] = 0x45;
  ip[1] = grh.traffic_class;
  StoreBe16(ip + 2, static_cast<uint16_t>(kIpv4Size + udp));
  StoreBe16(ip + 6, kDontFragment);
  ip[8] = grh.hop_limit;
  ip[9] = kProtocolUdp;
  std::memcpy(ip + 12, grh.source.bytes.data() + 12, 4);
  std::memcpy(ip + 16, grh.destination.bytes.data() + 12, 4);
  StoreBe16(ip + 10, Checksum(ip));
}

bool ParseGrh(const uint8_t* bytes, Grh* out) {
  // The bytes before an IPv4 header are undefined and may look like an IPv6
  // header. The IPv4 checksum decides.
  const uint8_t* const ip = bytes + kGrhV4Offset;
  const uint32_t first = LoadBe32(bytes);
  const bool is_v6 = first >> 28 == 6;
  if (ip[0] == 0x45 && (!is_v6 || Checksum(ip) == 0)) {
    uint32_t address;
    std::memcpy(&address, ip + 12, sizeof(address));
    out->source = IpAddress::FromV4(address);
    std::memcpy(&address, ip + 16, sizeof(address));
    out->destination = IpAddress::FromV4(address);
    out->traffic_class = ip[1];
    out->hop_limit = ip[8];
    out->flow_label = 0;
    return true;
  }
  if (!is_v6) return false;
  out->source = IpAddress::FromGid(bytes + 8);
  out->destination = IpAddress::FromGid(bytes + 24);
  out->traffic_class = static_cast<uint8_t>(first >> 20);
  out->hop_limit = bytes[7];
  out->flow_label = first & 0xfffff;
  return true;
}

}  // namespace wire
