// The classic BPF program of a reuseport group.
#ifndef RXE_USER_BROKER_STEERING_H_
#define RXE_USER_BROKER_STEERING_H_

#include <linux/filter.h>

#include <array>
#include <cstdint>
#include <vector>

#include "rxe_user/broker/protocol.h"

namespace rxe_user::broker {

// Maps a slot to the position of its socket in the group.
inline constexpr uint16_t kNoIndex = 0xffff;
using IndexMap = std::array<uint16_t, kSlots>;

// A probe is a UDP payload of these words in network order: the group's probe
// word, the index that the program must return, and the identity of the socket
// that is expected there. It is shorter than any packet. The first byte of the
// probe word is no opcode; the others are random.
inline constexpr uint8_t kProbeFirstByte = 0xff;
inline constexpr uint32_t kAnyIdentity = 0xffffffff;
struct Probe {
  uint32_t word_be;
  uint32_t index_be;
  uint32_t identity_be;
};

// Steers by bits 23..12 of the destination queue pair (BTH bytes 5..7). Steers
// an RTU by the upper twelve bits of the remote communication ID, which are the
// slot of the process that created it, so a passive end gets its RTU without
// the broker. Steers a packet of the DC transport for queue pair 0xffffff, such
// as a connect, by the upper twelve bits of the DCT number in its DCETH. Slots
// without a socket, and payloads shorter than a packet, go to map[0]. The
// program sees the UDP payload. It needs at most 10 comparisons for any map,
// and has fewer than BPF_MAXINSNS instructions.
std::vector<sock_filter> SteeringProgram(const IndexMap& map,
                                         uint32_t probe_word);

// A socket filter that drops the group's probes for this socket or for any
// socket (kAnyIdentity). It sees the UDP header first.
std::vector<sock_filter> ProbeFilter(uint32_t probe_word, uint32_t identity);

// Attaches a socket filter or a group's program (SO_ATTACH_...). False if
// refused, with errno set.
bool AttachFilter(int fd, int option, std::vector<sock_filter> code);

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_STEERING_H_
