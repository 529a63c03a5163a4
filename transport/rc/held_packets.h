// Packets that arrived beyond an open gap, kept off to the side until the gap
// fills (docs/architecture.md, "Loss and congestion"): nothing of them reaches
// application memory before their turn.
#ifndef TRANSPORT_RC_HELD_PACKETS_H_
#define TRANSPORT_RC_HELD_PACKETS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace transport {

// What one queue pair may hold: 256 KiB in equal slots, at most 512.
struct HoldArena {
  static constexpr size_t kBytes = 256 * 1024;
  static constexpr size_t kMaxPackets = 512;

  struct Entry {
    uint64_t psn;
    uint16_t slot;
    uint16_t size;  // bytes
  };

  uint8_t bytes[kBytes];
  Entry entries[kMaxPackets];  // ascending by PSN
  uint16_t free_slots[kMaxPackets];
};

// The arenas of one endpoint: bounded in number, made when first needed, a few
// kept for the next gap.
class HoldPool {
 public:
  static constexpr size_t kMaxArenas = 256;  // 64 MiB in all
  static constexpr size_t kKept = 8;

  // Null when the endpoint holds as much as it may.
  std::unique_ptr<HoldArena> Take();
  void Give(std::unique_ptr<HoldArena> arena);  // null is welcome

 private:
  size_t out_ = 0;
  std::vector<std::unique_ptr<HoldArena>> kept_;
};

// The held packets of one queue pair, in PSN order.
class HeldPackets {
 public:
  // `pool` outlives it.
  explicit HeldPackets(HoldPool* pool) : pool_(pool) {}
  ~HeldPackets() { Clear(); }
  HeldPackets(const HeldPackets&) = delete;
  HeldPackets& operator=(const HeldPackets&) = delete;

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  bool Contains(uint64_t psn) const;
  // Only when not empty.
  uint64_t first_psn() const { return arena_->entries[head_].psn; }
  // Valid until the next call of a method that is not const.
  std::span<const uint8_t> first() const;

  // Copies `packet` (BTH to ICRC). `max_packet` is the longest packet of this
  // queue pair; it does not change while anything is held. False when there is
  // no room, when it is too long, or when `psn` is held already.
  bool Insert(uint64_t psn, std::span<const uint8_t> packet, size_t max_packet);
  void PopFirst();
  // Gives the memory back.
  void Clear();

 private:
  // The first entry whose PSN is not below `psn`, as an index from head_.
  size_t LowerBound(uint64_t psn) const;

  HoldPool* const pool_;
  std::unique_ptr<HoldArena> arena_;
  size_t slot_bytes_ = 0;
  size_t free_ = 0;  // of free_slots
  size_t head_ = 0;  // in entries
  size_t size_ = 0;
};

}  // namespace transport

#endif  // TRANSPORT_RC_HELD_PACKETS_H_
