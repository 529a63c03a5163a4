// Protocol numbers and header sizes of Ethernet, IP and UDP.
#ifndef WIRE_IP_NUMBERS_H_
#define WIRE_IP_NUMBERS_H_

#include <cstddef>
#include <cstdint>

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

}  // namespace wire

#endif  // WIRE_IP_NUMBERS_H_
