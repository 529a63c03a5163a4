#include "rxe_user/broker/steering.h"

#include <sys/socket.h>

#include <span>

#include "transport/cm/mad_packet.h"
#include "wire/cm.h"
#include "wire/opcode.h"

namespace rxe_user::broker {
namespace {

constexpr uint32_t kLeastPacket = wire::kBthSize + wire::kIcrcSize;
static_assert(sizeof(Probe) < kLeastPacket);
// A MAD follows these headers.
constexpr uint32_t kMad = wire::kBthSize + wire::kDethSize;
constexpr auto kRtu = static_cast<uint32_t>(wire::CmAttribute::kRtu);

// Slots from `first` up to the next range go to `index`.
struct Range {
  uint32_t first;
  uint16_t index;
};

std::vector<Range> RangesOf(const IndexMap& map) {
  std::vector<Range> ranges;
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    const uint16_t index = map[slot] == kNoIndex ? map[0] : map[slot];
    if (ranges.empty() || ranges.back().index != index) {
      ranges.push_back({slot, index});
    }
  }
  return ranges;
}

// A binary tree over the ranges, with the slot in the accumulator. Conditional
// jumps reach 255 instructions only, so JA reaches the far half.
void EmitTree(std::span<const Range> ranges, std::vector<sock_filter>& out) {
  if (ranges.size() == 1) {
    out.push_back(BPF_STMT(BPF_RET | BPF_K, ranges[0].index));
    return;
  }
  const size_t half = ranges.size() / 2;
  out.push_back(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, ranges[half].first, 0, 1));
  const size_t jump = out.size();
  out.push_back(BPF_STMT(BPF_JMP | BPF_JA, 0));
  EmitTree(ranges.first(half), out);
  out[jump].k = static_cast<uint32_t>(out.size() - jump - 1);
  EmitTree(ranges.subspan(half), out);
}

}  // namespace

std::vector<sock_filter> SteeringProgram(const IndexMap& map,
                                         uint32_t probe_word) {
  // The payload is read once for anything but a probe, since its bytes are
  // mostly not in the linear part of the kernel's buffer.
  std::vector<sock_filter> p = {
      BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kLeastPacket, 6, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, sizeof(Probe), 0, 4),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, probe_word, 0, 2),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 4),
      BPF_STMT(BPF_RET | BPF_A, 0),
      BPF_STMT(BPF_RET | BPF_K, map[0]),
      // The slot: the upper byte of the destination queue pair number.
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, wire::kBthDestQpnOffset),
      // An RTU for queue pair 1: by the slot in the communication ID.
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 6),
      BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, transport::cm::kMadPacketSize, 0, 2),
      BPF_STMT(BPF_LD | BPF_H | BPF_ABS, kMad + wire::kMadAttributeOffset),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kRtu, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, map[0]),
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kMad + wire::kCmRemoteCommIdOffset),
  };
  EmitTree(RangesOf(map), p);
  return p;
}

std::vector<sock_filter> ProbeFilter(uint32_t probe_word, uint32_t identity) {
  return {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 8),
          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, probe_word, 0, 4),
          BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 16),
          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kAnyIdentity, 1, 0),
          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, identity, 0, 1),
          BPF_STMT(BPF_RET | BPF_K, 0),            // dropped
          BPF_STMT(BPF_RET | BPF_K, 0xffffffff)};  // accepted whole
}

bool AttachFilter(int fd, int option, std::vector<sock_filter> code) {
  const sock_fprog program{static_cast<unsigned short>(code.size()),
                           code.data()};
  return setsockopt(fd, SOL_SOCKET, option, &program, sizeof(program)) == 0;
}

}  // namespace rxe_user::broker
