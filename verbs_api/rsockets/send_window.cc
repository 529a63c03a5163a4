#include "verbs_api/rsockets/send_window.h"

#include <algorithm>
#include <atomic>

namespace rsockets {

Buffer TargetList::Take() {
  Buffer& entry = memory_[next_];
  // The peer's write makes the length visible last.
  std::atomic_ref<uint32_t> length(entry.length);
  if (length.load(std::memory_order_acquire) == 0) return {};
  const Buffer taken = entry;
  length.store(0, std::memory_order_relaxed);
  next_ = (next_ + 1) % kEntries;
  return taken;
}

SendWindow::SendWindow(uint32_t ring, uint16_t slots)
    : ring_(ring),
      free_(ring),
      data_slots_(static_cast<uint16_t>(slots - kControlSlots)),
      slots_(data_slots_) {}

void SendWindow::Begin(const Buffer& buffer, uint16_t credits) {
  target_ = buffer;
  next_ = 0;
  limit_ = credits;
}

uint32_t SendWindow::DirectRoom() const {
  return slots_ == 0 || free_ < std::min(kLowWater, ring_) ? 0 : free_;
}

uint32_t SendWindow::Room() const {
  if (next_ == limit_) return 0;
  return std::min({DirectRoom(), target_.length, kMaxMessageData});
}

Buffer SendWindow::TakeTarget(uint32_t length) {
  Buffer to = target_;
  to.length = length;
  target_.address += length;
  target_.length -= length;
  ++next_;
  TakeSlot();
  return to;
}

RingPiece SendWindow::TakeRing(uint32_t length) {
  RingPiece piece;
  piece.offset = begin_;
  piece.first = std::min(length, ring_ - begin_);
  piece.second = length - piece.first;
  begin_ = piece.second > 0 ? piece.second : begin_ + piece.first;
  if (begin_ == ring_) begin_ = 0;
  free_ -= length;
  return piece;
}

void SendWindow::OnSent(uint32_t ring_bytes) {
  ++slots_;
  free_ += ring_bytes;
}

}  // namespace rsockets
