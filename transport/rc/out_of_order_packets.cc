#include "transport/rc/out_of_order_packets.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace transport {

size_t OutOfOrderPackets::LowerBound(uint64_t psn) const {
  if (size_ == 0) return 0;
  const PacketArena::Entry* begin = arena_->entries + head_;
  return std::lower_bound(begin, begin + size_, psn,
                          [](const PacketArena::Entry& entry, uint64_t value) {
                            return entry.psn < value;
                          }) -
         begin;
}

bool OutOfOrderPackets::Contains(uint64_t psn) const {
  const size_t index = LowerBound(psn);
  return index < size_ && arena_->entries[head_ + index].psn == psn;
}

std::span<const uint8_t> OutOfOrderPackets::first() const {
  const PacketArena::Entry& entry = arena_->entries[head_];
  return {arena_->bytes + entry.slot * slot_bytes_, entry.size};
}

bool OutOfOrderPackets::Insert(uint64_t psn, std::span<const uint8_t> packet,
                               size_t max_packet) {
  if (packet.size() > max_packet || max_packet > PacketArena::kBytes) {
    return false;
  }
  if (arena_ == nullptr) {
    arena_ = pool_->Take();
    if (arena_ == nullptr) return false;
    slot_bytes_ = max_packet;
    free_ =
        std::min(PacketArena::kBytes / max_packet, PacketArena::kMaxPackets);
    for (size_t i = 0; i < free_; ++i) {
      arena_->free_slots[i] = static_cast<uint16_t>(free_ - 1 - i);
    }
    head_ = 0;
  }
  if (packet.size() > slot_bytes_ || free_ == 0 || Contains(psn)) return false;
  PacketArena::Entry* entries = arena_->entries;
  if (head_ + size_ == PacketArena::kMaxPackets) {
    std::copy(entries + head_, entries + head_ + size_, entries);
    head_ = 0;
  }
  PacketArena::Entry* place = entries + head_ + LowerBound(psn);
  std::copy_backward(place, entries + head_ + size_,
                     entries + head_ + size_ + 1);
  const uint16_t slot = arena_->free_slots[--free_];
  *place = {psn, slot, static_cast<uint16_t>(packet.size())};
  std::memcpy(arena_->bytes + slot * slot_bytes_, packet.data(), packet.size());
  ++size_;
  return true;
}

void OutOfOrderPackets::PopFirst() {
  arena_->free_slots[free_++] = arena_->entries[head_].slot;
  ++head_;
  --size_;
}

void OutOfOrderPackets::Clear() {
  size_ = 0;
  head_ = 0;
  pool_->Give(std::move(arena_));
}

}  // namespace transport
