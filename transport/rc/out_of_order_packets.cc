#include "transport/rc/out_of_order_packets.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "wire/opcode.h"

namespace transport {
namespace {

// Whether `b` is a retransmission of `a`: equal but for BTH's congestion bits,
// AckReq, and the ICRC, which covers the IP identification.
bool IsCopy(std::span<const uint8_t> a, std::span<const uint8_t> b) {
  constexpr size_t kCongestion = 4;  // then destination and AckReq
  constexpr size_t kPsn = 9;
  if (a.size() != b.size()) return false;
  return std::equal(a.begin(), a.begin() + kCongestion, b.begin()) &&
         std::equal(a.begin() + kPsn, a.end() - wire::kIcrcSize,
                    b.begin() + kPsn);
}

}  // namespace

size_t OutOfOrderPackets::LowerBound(uint64_t psn) const {
  if (size_ == 0) return 0;
  const PacketArena::Entry* begin = arena_->entries + head_;
  return std::lower_bound(begin, begin + size_, psn,
                          [](const PacketArena::Entry& entry, uint64_t value) {
                            return entry.psn < value;
                          }) -
         begin;
}

OutOfOrderPackets::Inserted OutOfOrderPackets::Insert(
    uint64_t psn, std::span<const uint8_t> packet, size_t max_packet) {
  if (packet.size() > max_packet || max_packet > PacketArena::kBytes) {
    return Inserted::kFull;
  }
  if (arena_ == nullptr) {
    arena_ = pool_->Take();
    if (arena_ == nullptr) return Inserted::kFull;
    slot_bytes_ = max_packet;
    free_ =
        std::min(PacketArena::kBytes / max_packet, PacketArena::kMaxPackets);
    for (size_t i = 0; i < free_; ++i) {
      arena_->free_slots[i] = static_cast<uint16_t>(free_ - 1 - i);
    }
    head_ = 0;
  }
  PacketArena::Entry* entries = arena_->entries;
  const size_t index = LowerBound(psn);
  if (index < size_ && entries[head_ + index].psn == psn) {
    if (IsCopy(Bytes(head_ + index), packet)) return Inserted::kCopy;
    Erase(head_ + index);
    return Inserted::kConflict;
  }
  if (packet.size() > slot_bytes_ || free_ == 0) return Inserted::kFull;
  if (head_ + size_ == PacketArena::kMaxPackets) {
    std::copy(entries + head_, entries + head_ + size_, entries);
    head_ = 0;
  }
  PacketArena::Entry* place = entries + head_ + index;
  std::copy_backward(place, entries + head_ + size_,
                     entries + head_ + size_ + 1);
  const uint16_t slot = arena_->free_slots[--free_];
  *place = {psn, slot, static_cast<uint16_t>(packet.size())};
  std::memcpy(arena_->bytes + slot * slot_bytes_, packet.data(), packet.size());
  ++size_;
  return Inserted::kBuffered;
}

void OutOfOrderPackets::Erase(size_t place) {
  PacketArena::Entry* entries = arena_->entries;
  arena_->free_slots[free_++] = entries[place].slot;
  std::copy(entries + place + 1, entries + head_ + size_, entries + place);
  --size_;
}

void OutOfOrderPackets::PopFirst() {
  arena_->free_slots[free_++] = arena_->entries[head_].slot;
  ++head_;
  --size_;
}

void OutOfOrderPackets::Clear() {
  size_ = 0;
  head_ = 0;
  pool_->Return(std::move(arena_));
}

}  // namespace transport
