#include "transport/rc/outstanding_reads.h"

#include <cassert>
#include <utility>

namespace transport {

void OutstandingReads::Allocate(uint32_t capacity) {
  assert(empty());
  head_ = 0;
  if (capacity == capacity_) return;
  entries_ = std::make_unique<Entry[]>(capacity);
  capacity_ = static_cast<uint16_t>(capacity);
}

const OutstandingReads::Entry* OutstandingReads::Find(uint64_t seq) const {
  for (uint32_t i = 0; i < size_; ++i) {
    const Entry& entry = entries_[(head_ + i) % capacity_];
    if (seq >= entry.first && seq < entry.end) return &entry;
  }
  return nullptr;
}

OutstandingReads::Entry* OutstandingReads::Find(uint64_t seq) {
  return const_cast<Entry*>(std::as_const(*this).Find(seq));
}

const OutstandingReads::Entry* OutstandingReads::FindFrom(uint64_t seq) const {
  for (uint32_t i = 0; i < size_; ++i) {
    const Entry& entry = entries_[(head_ + i) % capacity_];
    if (entry.end > seq) return &entry;
  }
  return nullptr;
}

void OutstandingReads::Push(uint64_t first, uint64_t end) {
  assert(!full());
  entries_[(head_ + size_) % capacity_] = {.first = first, .end = end};
  ++size_;
}

void OutstandingReads::PopFront() {
  assert(!empty());
  head_ = static_cast<uint16_t>((head_ + 1) % capacity_);
  --size_;
}

void OutstandingReads::MarkReplayed() {
  for (uint32_t i = 0; i < size_; ++i) {
    entries_[(head_ + i) % capacity_].replayed = true;
  }
}

}  // namespace transport
