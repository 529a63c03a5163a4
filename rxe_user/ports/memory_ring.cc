#include "rxe_user/ports/memory_ring.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "rxe_user/base/non_temporal.h"

namespace rxe_user {
namespace {

constexpr size_t kCapacity = RingMemory::kCapacity;

// Bytes of a record with `bytes` of packets.
constexpr size_t RecordBytes(size_t bytes) {
  return (sizeof(RecordHeader) + bytes + RingMemory::kAlign - 1) &
         ~(RingMemory::kAlign - 1);
}
static_assert(RecordBytes(RingWriter::kMaxBytes) * 2 <= kCapacity);

// Copies the header by atomic loads. After a memcpy, a compiler may read the
// source again, which the writer may have changed by then.
RecordHeader HeaderAt(uint8_t* at) {
  auto* const words = reinterpret_cast<uint64_t*>(at);
  const std::array<uint64_t, 2> copy = {
      std::atomic_ref(words[0]).load(std::memory_order_relaxed),
      std::atomic_ref(words[1]).load(std::memory_order_relaxed)};
  return std::bit_cast<RecordHeader>(copy);
}

}  // namespace

// --- The writer.

size_t RingWriter::Room(bool* skip) const {
  const size_t to_end = ToEnd();
  size_t room = std::min(Free(), to_end);
  *skip = room < RecordBytes(kMinBytes) && Free() > to_end;
  if (*skip) room = Free() - to_end;
  if (room < RecordBytes(kMinBytes)) return 0;
  return std::min(room - sizeof(RecordHeader), kMaxBytes);
}

void RingWriter::ReadHead() {
  const uint64_t head = memory_->head.load(std::memory_order_acquire);
  if (head < head_ || head > tail_ || head % RingMemory::kAlign != 0) {
    broken_ = true;
  } else {
    head_ = head;
  }
}

std::span<uint8_t> RingWriter::Reserve() {
  size_t room = Room(&skips_);
  if (room < kMaxBytes) {
    if (!broken_) ReadHead();
    if (broken_) return {};
    room = Room(&skips_);
    if (room == 0) return {};
  }
  const size_t at = skips_ ? 0 : At(tail_);
  return {memory_->records + at + sizeof(RecordHeader), room};
}

void RingWriter::Commit(const RecordHeader& header) {
  if (skips_) {
    const RecordHeader skip;
    std::memcpy(memory_->records + At(tail_), &skip, sizeof(skip));
    tail_ += ToEnd();
    skips_ = false;
  }
  std::memcpy(memory_->records + At(tail_), &header, sizeof(header));
  tail_ += RecordBytes(header.bytes);
  OrderNonTemporalStores();  // of payload
  memory_->tail.store(tail_, std::memory_order_release);
}

bool RingWriter::HasRoom() {
  if (!broken_) ReadHead();
  return broken_ || Free() >= kCapacity / 2;
}

bool RingWriter::IsRead() {
  if (!broken_) ReadHead();
  return !broken_ && head_ == tail_;
}

// --- The reader.

size_t RingReader::Read(std::span<uint8_t> out, RecordHeader* header) {
  if (broken_) return 0;
  const uint64_t tail = memory_->tail.load(std::memory_order_acquire);
  for (;;) {
    if (tail == head_) return 0;
    if (tail < head_ || tail - head_ > kCapacity ||
        tail % RingMemory::kAlign != 0) {
      return Break();
    }
    const auto at = static_cast<size_t>(head_ % kCapacity);
    const size_t most =
        std::min(static_cast<size_t>(tail - head_), kCapacity - at);
    *header = HeaderAt(memory_->records + at);
    if (header->bytes == 0) {
      if (most != kCapacity - at) return Break();  // a skip ends at the end
      head_ += most;
      continue;
    }
    // The first comparison bounds the sum.
    if (header->bytes > RingWriter::kMaxBytes ||
        RecordBytes(header->bytes) > most || header->segment_size == 0) {
      return Break();
    }
    if (header->bytes > out.size()) return 0;
    std::memcpy(out.data(), memory_->records + at + sizeof(*header),
                header->bytes);
    head_ += RecordBytes(header->bytes);
    memory_->head.store(head_, std::memory_order_release);
    return header->bytes;
  }
}

}  // namespace rxe_user
