// Packets that arrived beyond an open gap, buffered until the gap fills
// (docs/design/loss-and-congestion.md). They do not reach application memory
// before their turn.
#ifndef TRANSPORT_RC_OUT_OF_ORDER_PACKETS_H_
#define TRANSPORT_RC_OUT_OF_ORDER_PACKETS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "transport/endpoint/packet_arena.h"

namespace transport {

// The packets of one queue pair, in PSN order.
class OutOfOrderPackets {
 public:
  // `pool` outlives it.
  explicit OutOfOrderPackets(PacketArenaPool* pool) : pool_(pool) {}
  ~OutOfOrderPackets() { Clear(); }
  OutOfOrderPackets(const OutOfOrderPackets&) = delete;
  OutOfOrderPackets& operator=(const OutOfOrderPackets&) = delete;

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  // Nothing has been buffered since Clear: it has no memory.
  bool unused() const { return arena_ == nullptr; }
  // Only when not empty.
  uint64_t first_psn() const { return arena_->entries[head_].psn; }
  // Valid until the next call of a method that is not const.
  std::span<const uint8_t> first() const { return Bytes(head_); }

  enum class Inserted : uint8_t {
    kBuffered,
    kCopy,      // the same is buffered already
    kConflict,  // another one with this PSN was buffered; now neither is
    kFull,      // or it is too long
  };
  // Copies `packet` (BTH to ICRC). `max_packet` is the longest packet of this
  // queue pair; it does not change while anything is buffered.
  Inserted Insert(uint64_t psn, std::span<const uint8_t> packet,
                  size_t max_packet);
  void PopFirst();
  // Gives the memory back.
  void Clear();

 private:
  // The first entry whose PSN is not below `psn`, as an index from head_.
  size_t LowerBound(uint64_t psn) const;
  // Of an entry, by its place in entries.
  std::span<const uint8_t> Bytes(size_t place) const {
    const PacketArena::Entry& entry = arena_->entries[place];
    return {arena_->bytes + entry.slot * slot_bytes_, entry.size};
  }
  void Erase(size_t place);

  PacketArenaPool* const pool_;
  std::unique_ptr<PacketArena> arena_;
  uint32_t slot_bytes_ = 0;
  uint32_t free_ = 0;  // of free_slots
  uint32_t head_ = 0;  // in entries
  uint32_t size_ = 0;
};

}  // namespace transport

#endif  // TRANSPORT_RC_OUT_OF_ORDER_PACKETS_H_
