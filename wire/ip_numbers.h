// Protocol numbers, header sizes and checksums of Ethernet, IP and UDP.
#ifndef WIRE_IP_NUMBERS_H_
#define WIRE_IP_NUMBERS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/bytes.h"

namespace wire {

inline constexpr uint16_t kEtherIpv4 = 0x0800;
inline constexpr uint16_t kEtherIpv6 = 0x86dd;

// Without options and extension headers.
inline constexpr size_t kIpv4Size = 20;
inline constexpr size_t kIpv6Size = 40;
inline constexpr size_t kUdpSize = 8;

// Protocol numbers.
inline constexpr uint8_t kProtocolUdp = 17;
inline constexpr uint8_t kProtocolFragment = 44;  // IPv6's fragment header

// RFC 1071 sum of 16-bit words in network order, not yet folded. Further
// bytes must start at an even offset.
inline uint64_t IpSum(std::span<const uint8_t> bytes, uint64_t sum = 0) {
  const uint8_t* p = bytes.data();
  size_t left = bytes.size();
  // 32-bit words give the same folded sum.
  for (; left >= 4; left -= 4, p += 4) sum += LoadBe32(p);
  if (left >= 2) {
    sum += LoadBe16(p);
    p += 2;
    left -= 2;
  }
  if (left != 0) sum += uint64_t{p[0]} << 8;
  return sum;
}

inline uint16_t FoldIpSum(uint64_t sum) {
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(sum);
}

}  // namespace wire

#endif  // WIRE_IP_NUMBERS_H_
