// The 40 bytes before the payload of a UD receive: the size of InfiniBand's
// global routing header (IBA vol. 1, 8.3), with the packet's IP header in it
// (annex A17, RoCEv2). They are an IPv6 header, or 20 bytes of zeros and an
// IPv4 header.

#ifndef WIRE_GRH_H_
#define WIRE_GRH_H_

#include <cstddef>
#include <cstdint>

#include "wire/address.h"

namespace wire {

inline constexpr size_t kGrhSize = 40;      // bytes
inline constexpr size_t kGrhV4Offset = 20;  // of the IPv4 header

// The header fields that a receiver gets. The IPv4 identification is always 0
// (docs/design/transport.md).
struct Grh {
  IpAddress source;
  IpAddress destination;  // of the same family
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 0;
  uint32_t flow_label = 0;  // 20 bits; IPv6 only

  bool operator==(const Grh&) const = default;
};

// Writes the kGrhSize bytes for a packet of `udp_payload` bytes, BTH to ICRC.
void EmitGrh(const Grh& grh, size_t udp_payload, uint8_t* out);

// Reads kGrhSize bytes; false if neither header is there.
bool ParseGrh(const uint8_t* bytes, Grh* out);

}  // namespace wire

#endif  // WIRE_GRH_H_
