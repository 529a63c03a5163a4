// What stands before each frame of a socket with PACKET_VNET_HDR: struct
// virtio_net_hdr (virtio 1.0, 5.1.6), in the host's byte order. Linux's header
// for it is C alone.
#ifndef RXE_USER_RAW_PACKET_OFFLOAD_HEADER_H_
#define RXE_USER_RAW_PACKET_OFFLOAD_HEADER_H_

#include <cstdint>

namespace rxe_user {

struct OffloadHeader {
  uint8_t flags;     // kNeedsChecksum
  uint8_t gso_type;  // what kind of segments it consists of
  uint16_t header_length;
  uint16_t gso_size;         // payload of each segment, bytes
  uint16_t checksum_start;   // what is summed up: from here on
  uint16_t checksum_offset;  // where the sum goes, from there
};
static_assert(sizeof(OffloadHeader) == 10);

inline constexpr uint8_t kNeedsChecksum = 1;
// Values of gso_type. kGsoUdp: since Linux 6.2.
inline constexpr uint8_t kGsoTcp4 = 1;
inline constexpr uint8_t kGsoTcp6 = 4;
inline constexpr uint8_t kGsoUdp = 5;
inline constexpr uint8_t kGsoEcn = 0x80;  // beside one of them

}  // namespace rxe_user

#endif  // RXE_USER_RAW_PACKET_OFFLOAD_HEADER_H_
