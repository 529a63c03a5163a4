// The header of each frame of a socket with PACKET_VNET_HDR: struct
// virtio_net_hdr (virtio 1.0, 5.1.6), in host byte order. Linux's header file
// for it is C only.
#ifndef RXE_USER_RAW_PACKET_OFFLOAD_HEADER_H_
#define RXE_USER_RAW_PACKET_OFFLOAD_HEADER_H_

#include <cstdint>

namespace rxe_user {

struct OffloadHeader {
  uint8_t flags;     // kNeedsChecksum
  uint8_t gso_type;  // the type of the segments
  uint16_t header_length;
  uint16_t gso_size;         // payload of each segment, bytes
  uint16_t checksum_start;   // the checksum covers the frame from here
  uint16_t checksum_offset;  // where to store it, from checksum_start
};
static_assert(sizeof(OffloadHeader) == 10);

inline constexpr uint8_t kNeedsChecksum = 1;
// Values of gso_type. kGsoUdp: since Linux 6.2.
inline constexpr uint8_t kGsoTcp4 = 1;
inline constexpr uint8_t kGsoTcp6 = 4;
inline constexpr uint8_t kGsoUdp = 5;
inline constexpr uint8_t kGsoEcn = 0x80;  // may be combined with these

}  // namespace rxe_user

#endif  // RXE_USER_RAW_PACKET_OFFLOAD_HEADER_H_
