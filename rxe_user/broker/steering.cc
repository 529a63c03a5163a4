#include "rxe_user/broker/steering.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <span>

#include "transport/cm/mad_packet.h"
#include "wire/cm.h"
#include "wire/headers.h"
#include "wire/opcode.h"

namespace rxe_user::broker {
namespace {

constexpr uint32_t kMinPacket = wire::kBthSize + wire::kIcrcSize;
static_assert(sizeof(Probe) < kMinPacket);
// A MAD follows these headers.
constexpr uint32_t kMad = wire::kBthSize + wire::kDethSize;
constexpr auto kRtu = static_cast<uint32_t>(wire::CmAttribute::kRtu);

// DCETH follows the BTH of a packet of the DC transport. Its 14th byte begins
// the number of the DCT.
constexpr uint32_t kDcFirstOpcode = 0x40;
constexpr uint32_t kDcLastOpcode = 0x57;
constexpr uint32_t kDcDctNumberOffset = wire::kBthSize + 13;
constexpr uint32_t kMinDcPacket = wire::kBthSize + 20 + wire::kIcrcSize;
constexpr uint32_t kDcConnectSlot = SlotOf(wire::kMulticastQpn);
static_assert(kDcConnectSlot >= kSlots);

// The program compares 16 bits; the slot is the upper twelve of them.
constexpr uint32_t kSlotShift = 4;

// The four slots whose numbers differ only in the last two bits.
constexpr uint32_t kBucket = 4;
using Bucket = std::array<uint16_t, kBucket>;  // indexes

// The slots from `first` to the start of the next range.
struct Range {
  uint32_t first;
  enum class Kind : uint8_t {
    kConstant,  // go to `index`
    kLinear,    // go to slot - offset
    kBucket,    // go to the indexes of `bucket`
  } kind;
  uint32_t index = 0;
  uint32_t offset = 0;  // modulo 2^32
  Bucket bucket{};
};

uint16_t IndexOf(const IndexMap& map, uint32_t slot) {
  return slot >= kSlots || map[slot] == kNoIndex ? map[0] : map[slot];
}

// Ranges without buckets: the fastest program, but a large one if the indexes
// are in no order.
std::vector<Range> PlainRangesOf(const IndexMap& map) {
  // Fewer slots with consecutive indexes are found faster by a search.
  constexpr uint32_t kLinear = 8;
  std::vector<Range> ranges;
  for (uint32_t slot = 0; slot <= kSlots;) {
    const uint32_t index = IndexOf(map, slot);
    uint32_t end = slot + 1;
    while (end < kSlots && IndexOf(map, end) == index + (end - slot)) ++end;
    if (end - slot >= kLinear) {
      ranges.push_back({slot, Range::Kind::kLinear, 0, slot - index});
      slot = end;
      continue;
    }
    if (ranges.empty() || ranges.back().kind != Range::Kind::kConstant ||
        ranges.back().index != index) {
      ranges.push_back({slot, Range::Kind::kConstant, index});
    }
    ++slot;
  }
  return ranges;
}

// Ranges of whole buckets: at most kSlots / 4.
std::vector<Range> BucketRangesOf(const IndexMap& map) {
  std::vector<Range> ranges;
  for (uint32_t slot = 0; slot < kSlots + kBucket; slot += kBucket) {
    Range range = {slot, Range::Kind::kBucket};
    bool constant = true, linear = true;
    for (uint32_t i = 0; i < kBucket; ++i) {
      range.bucket[i] = IndexOf(map, slot + i);
      constant &= range.bucket[i] == range.bucket[0];
      linear &= range.bucket[i] == range.bucket[0] + i;
    }
    if (constant) {
      range = {slot, Range::Kind::kConstant, range.bucket[0]};
    } else if (linear) {
      range = {slot, Range::Kind::kLinear, 0, slot - range.bucket[0]};
    }
    if (ranges.empty() || range.kind == Range::Kind::kBucket ||
        range.kind != ranges.back().kind ||
        range.index != ranges.back().index ||
        range.offset != ranges.back().offset) {
      ranges.push_back(range);
    }
  }
  return ranges;
}

// A system may limit a program to some 2,400 instructions
// (net.core.optmem_max). The kernel turns a range into up to four.
constexpr size_t kMaxPlainRanges = 512;

std::vector<Range> RangesOf(const IndexMap& map) {
  std::vector<Range> plain = PlainRangesOf(map);
  return plain.size() <= kMaxPlainRanges ? plain : BucketRangesOf(map);
}

// The program's scratch memory.
constexpr uint32_t kSlotWord = 0;
constexpr uint32_t kLowWord = 1;

// Searches for a slot's index. The second part selects one of the four indexes
// of a bucket.
class Search {
 public:
  // The slot must be in the upper bits of the accumulator.
  explicit Search(std::vector<sock_filter>& out) : out_(out) {}
  void Emit(const std::vector<Range>& ranges) {
    if (std::ranges::any_of(ranges, [](const Range& r) {
          return r.kind == Range::Kind::kBucket;
        })) {
      out_.push_back(BPF_STMT(BPF_ST, kSlotWord));
    }
    EmitTree(ranges, out_);
    for (const size_t jump : to_selection_) {
      out_[jump].k = static_cast<uint32_t>(out_.size() - jump - 1);
    }
    if (to_selection_.empty()) return;
    // The first two indexes are in A, the others in X; each pair has the even
    // slot's index in its lower half.
    const sock_filter selection[] = {
        BPF_STMT(BPF_ST, kLowWord),
        BPF_STMT(BPF_LD | BPF_MEM, kSlotWord),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 2 << kSlotShift, 1, 0),
        BPF_STMT(BPF_LDX | BPF_MEM, kLowWord),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 1 << kSlotShift, 0, 3),
        BPF_STMT(BPF_MISC | BPF_TXA, 0),
        BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 16),
        BPF_STMT(BPF_RET | BPF_A, 0),
        BPF_STMT(BPF_MISC | BPF_TXA, 0),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xffff),
        BPF_STMT(BPF_RET | BPF_A, 0),
    };
    out_.insert(out_.end(), std::begin(selection), std::end(selection));
  }

 private:
  // Emits a binary tree. A conditional jump reaches only 255 instructions, so a
  // JA reaches a half that is farther away.
  void EmitTree(std::span<const Range> ranges, std::vector<sock_filter>& out) {
    if (ranges.size() == 1) return EmitLeaf(ranges[0]);
    const size_t half = ranges.size() / 2;
    const size_t branch = out.size();
    const uint32_t first = ranges[half].first << kSlotShift;
    // A range has at most 3 instructions and a jump.
    const bool near = half * 4 <= 255;
    out.push_back(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, first, 0, 0));
    if (!near) {
      out[branch].jf = 1;
      out.push_back(BPF_STMT(BPF_JMP | BPF_JA, 0));
    }
    const size_t begin = out.size();
    EmitTree(ranges.first(half), out);
    const size_t size = out.size() - begin;
    if (near) {
      out[branch].jt = static_cast<uint8_t>(size);
    } else {
      out[branch + 1].k = static_cast<uint32_t>(size);
    }
    EmitTree(ranges.subspan(half), out);
  }

  void EmitLeaf(const Range& range) {
    switch (range.kind) {
      case Range::Kind::kConstant:
        out_.push_back(BPF_STMT(BPF_RET | BPF_K, range.index));
        return;
      case Range::Kind::kLinear:
        out_.push_back(BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, kSlotShift));
        out_.push_back(BPF_STMT(BPF_ALU | BPF_SUB | BPF_K, range.offset));
        out_.push_back(BPF_STMT(BPF_RET | BPF_A, 0));
        return;
      case Range::Kind::kBucket:
        break;
    }
    const auto& [a, b, c, d] = range.bucket;
    out_.push_back(BPF_STMT(BPF_LD | BPF_IMM, uint32_t{b} << 16 | a));
    out_.push_back(BPF_STMT(BPF_LDX | BPF_IMM, uint32_t{d} << 16 | c));
    to_selection_.push_back(out_.size());
    out_.push_back(BPF_STMT(BPF_JMP | BPF_JA, 0));
  }

  std::vector<sock_filter>& out_;
  std::vector<size_t> to_selection_;  // jumps
};

}  // namespace

std::vector<sock_filter> SteeringProgram(const IndexMap& map,
                                         uint32_t probe_word) {
  // Loads from the payload are slow, since its bytes are mostly outside the
  // linear part of the kernel's buffer. So most packets need only one; a probe,
  // an RTU, and a DC packet without a queue pair need more.
  std::vector<sock_filter> p = {
      BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kMinPacket, 6, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, sizeof(Probe), 0, 4),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, probe_word, 0, 2),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 4),
      BPF_STMT(BPF_RET | BPF_A, 0),
      BPF_STMT(BPF_RET | BPF_K, map[0]),
      // The slot and more: half of the destination queue pair number.
      BPF_STMT(BPF_LD | BPF_H | BPF_ABS, wire::kBthDestQpnOffset),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 1 << kSlotShift, 0, 1),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kDcConnectSlot << kSlotShift, 7, 14),
      // An RTU for queue pair 1 is steered by the slot in the communication ID.
      BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, transport::cm::kMadPacketSize, 0, 2),
      BPF_STMT(BPF_LD | BPF_H | BPF_ABS, kMad + wire::kMadAttributeOffset),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kRtu, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, map[0]),
      BPF_STMT(BPF_LD | BPF_H | BPF_ABS, kMad + wire::kCmRemoteCommIdOffset),
      BPF_STMT(BPF_JMP | BPF_JA, 7),
      // A DC packet without a queue pair is steered by the slot in the DCT
      // number.
      BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kMinDcPacket, 0, 3),
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kDcFirstOpcode, 0, 1),
      BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, kDcLastOpcode, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, map[0]),
      BPF_STMT(BPF_LD | BPF_H | BPF_ABS, kDcDctNumberOffset),
  };
  Search(p).Emit(RangesOf(map));
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
