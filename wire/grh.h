// What a receive of an unreliable datagram has in front of its payload: 40
// bytes, the size of InfiniBand's global routing header (IBA vol. 1, 8.3), with
// the IP header that the packet came with (annex A17, RoCEv2): an IPv6 header,
// or 20 bytes of zeros and an IPv4 header.

#ifndef WIRE_GRH_H_
#define WIRE_GRH_H_

#include <cstddef>
#include <cstdint>

#include "wire/address.h"

namespace wire {

inline constexpr size_t kGrhSize = 40;      // bytes
inline constexpr size_t kGrhV4Offset = 20;  // of an IPv4 header in it

// The fields of either header that a receiver is told of. An IPv4
// identification is not among them (docs/design/transport.md): it is 0.
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

// Reads kGrhSize bytes; false if there is neither of the two headers.
bool ParseGrh(const uint8_t* bytes, Grh* out);

}  // namespace wire

#endif  // WIRE_GRH_H_
