#include "transport/rc/held_packets.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace transport {

std::unique_ptr<HoldArena> HoldPool::Take() {
  if (out_ == kMaxArenas) return nullptr;
  ++out_;
  if (kept_.empty()) return std::make_unique_for_overwrite<HoldArena>();
  std::unique_ptr<HoldArena> arena = std::move(kept_.back());
  kept_.pop_back();
  return arena;
}

void HoldPool::Give(std::unique_ptr<HoldArena> arena) {
  if (arena == nullptr) return;
  --out_;
  if (kept_.size() < kKept) kept_.push_back(std::move(arena));
}

size_t HeldPackets::LowerBound(uint64_t psn) const {
  if (size_ == 0) return 0;
  const HoldArena::Entry* begin = arena_->entries + head_;
  return std::lower_bound(begin, begin + size_, psn,
                          [](const HoldArena::Entry& entry, uint64_t value) {
                            return entry.psn < value;
                          }) -
         begin;
}

bool HeldPackets::Contains(uint64_t psn) const {
  const size_t index = LowerBound(psn);
  return index < size_ && arena_->entries[head_ + index].psn == psn;
}

std::span<const uint8_t> HeldPackets::first() const {
  const HoldArena::Entry& entry = arena_->entries[head_];
  return {arena_->bytes + entry.slot * slot_bytes_, entry.size};
}

bool HeldPackets::Insert(uint64_t psn, std::span<const uint8_t> packet,
                         size_t max_packet) {
  if (packet.size() > max_packet || max_packet > HoldArena::kBytes) {
    return false;
  }
  if (arena_ == nullptr) {
    arena_ = pool_->Take();
    if (arena_ == nullptr) return false;
    slot_bytes_ = max_packet;
    free_ = std::min(HoldArena::kBytes / max_packet, HoldArena::kMaxPackets);
    for (size_t i = 0; i < free_; ++i) {
      arena_->free_slots[i] = static_cast<uint16_t>(free_ - 1 - i);
    }
    head_ = 0;
  }
  if (packet.size() > slot_bytes_ || free_ == 0 || Contains(psn)) return false;
  HoldArena::Entry* entries = arena_->entries;
  if (head_ + size_ == HoldArena::kMaxPackets) {
    std::copy(entries + head_, entries + head_ + size_, entries);
    head_ = 0;
  }
  HoldArena::Entry* place = entries + head_ + LowerBound(psn);
  std::copy_backward(place, entries + head_ + size_,
                     entries + head_ + size_ + 1);
  const uint16_t slot = arena_->free_slots[--free_];
  *place = {psn, slot, static_cast<uint16_t>(packet.size())};
  std::memcpy(arena_->bytes + slot * slot_bytes_, packet.data(), packet.size());
  ++size_;
  return true;
}

void HeldPackets::PopFirst() {
  arena_->free_slots[free_++] = arena_->entries[head_].slot;
  ++head_;
  --size_;
}

void HeldPackets::Clear() {
  size_ = 0;
  head_ = 0;
  pool_->Give(std::move(arena_));
}

}  // namespace transport
