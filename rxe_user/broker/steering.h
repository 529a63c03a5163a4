// The classic BPF program that a reuseport group steers by.
#ifndef RXE_USER_BROKER_STEERING_H_
#define RXE_USER_BROKER_STEERING_H_

#include <linux/filter.h>

#include <array>
#include <cstdint>
#include <vector>

#include "rxe_user/broker/protocol.h"

namespace rxe_user::broker {

// Slot -> position of its socket in the group.
inline constexpr uint16_t kNoIndex = 0xffff;
using IndexMap = std::array<uint16_t, kSlots>;

// A probe is a UDP payload of these words, in network order: the group's probe
// word, the index that the program is to return, and the identity of the socket
// that is thought to be there. It is shorter than any packet; the probe word's
// first byte is no opcode, and the rest is random.
inline constexpr uint8_t kProbeFirstByte = 0xff;
inline constexpr uint32_t kAnyIdentity = 0xffffffff;
struct Probe {
  uint32_t word_be;
  uint32_t index_be;
  uint32_t identity_be;
};

// Steers by bits 23..16 of the destination queue pair (BTH bytes 5..7), and an
// RTU by the upper eight bits of the communication ID that it names: the slot
// of the process that gave it out. So a passive end hears without the broker
// that its connection is established. Slots without a socket, and what is too
// short for a packet, go to map[0]. The program sees the UDP payload. At most 9
// comparisons for any map.
std::vector<sock_filter> SteeringProgram(const IndexMap& map,
                                         uint32_t probe_word);

// A socket filter that drops those of the group's probes that name this socket,
// or any (kAnyIdentity). Sees the UDP header first.
std::vector<sock_filter> ProbeFilter(uint32_t probe_word, uint32_t identity);

// Attaches a socket filter or a group's program (SO_ATTACH_...). False if it is
// refused, errno says why.
bool AttachFilter(int fd, int option, std::vector<sock_filter> code);

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_STEERING_H_
