// A libFuzzer target: the ring of two lanes in shared memory. One end is ours;
// the other one stores any bytes, anywhere in the ring, between our steps. Our
// end stays within the ring and its buffer, ends a ring whose positions cannot
// be right, and does not touch it after that.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "rxe_user/ports/memory_ring.h"
#include "tests/fuzz/fuzz_input.h"

namespace {

using fuzz::FuzzInput;
using rxe_user::RecordHeader;
using rxe_user::RingMemory;
using rxe_user::RingReader;
using rxe_user::RingWriter;

constexpr uint32_t kUnits = RingMemory::kCapacity / RingMemory::kAlign;

void Require(bool condition) {
  if (!condition) std::abort();
}

// A position: mostly near `right`, and mostly at a record.
uint64_t Position(FuzzInput* input, uint64_t right) {
  switch (input->Below(4)) {
    case 0:
      return input->Take<uint64_t>();
    case 1:
      return right + static_cast<uint64_t>(int64_t{input->Signed()});
    default:
      return right +
             RingMemory::kAlign * input->Take<uint16_t>() % (2 * kUnits);
  }
}

// What the other end stores into the records.
void Scribble(FuzzInput* input, RingMemory* ring) {
  const size_t at =
      input->Take<uint16_t>() % kUnits * size_t{RingMemory::kAlign};
  if (input->Below(2) == 0) {
    const RecordHeader header = {.bytes = input->Below(4) == 0
                                              ? input->Take<uint32_t>()
                                              : input->Take<uint16_t>(),
                                 .segment_size = input->Take<uint16_t>()};
    std::memcpy(ring->records + at, &header, sizeof(header));
  } else {
    const std::span<const uint8_t> bytes = input->Bytes(RingMemory::kAlign);
    std::copy(bytes.begin(), bytes.end(), ring->records + at);
  }
}

void Read(FuzzInput* input, RingMemory* ring) {
  RingReader reader(ring);
  uint64_t right = 0;
  while (!input->empty()) {
    Scribble(input, ring);
    ring->tail = Position(input, right);
    std::vector<uint8_t> out(input->Below(8) == 0 ? input->Take<uint16_t>()
                                                  : RingWriter::kMostBytes);
    for (uint32_t reads = 0;; ++reads) {
      // Each read frees a record.
      Require(reads <= kUnits);
      const bool was_broken = reader.broken();
      const uint64_t head = ring->head;
      RecordHeader header;
      const size_t bytes = reader.Read(out, &header);
      Require(bytes <= out.size() && (bytes == 0 || bytes == header.bytes));
      Require(bytes == 0 || (header.segment_size != 0 && !was_broken));
      Require(ring->head >= head && ring->head <= head + RingMemory::kCapacity);
      if (bytes == 0) break;
    }
    Require(!reader.broken() || !reader.HasRecord());
    right = ring->head;
  }
}

void Write(FuzzInput* input, RingMemory* ring) {
  RingWriter writer(ring);
  const uint8_t* const end = ring->records + RingMemory::kCapacity;
  while (!input->empty()) {
    Scribble(input, ring);
    if (input->Below(2) == 0) ring->head = Position(input, writer.head());
    const bool was_broken = writer.broken();
    const std::span<uint8_t> room = writer.Reserve();
    Require(room.empty() || !was_broken);
    if (room.empty()) {
      (void)writer.HasRoom();
      (void)writer.IsRead();
      continue;
    }
    Require(room.data() > ring->records && room.data() + room.size() <= end);
    Require(room.size() >= RingWriter::kLeastBytes &&
            room.size() <= RingWriter::kMostBytes);
    const auto bytes = static_cast<uint32_t>(
        std::clamp<size_t>(input->Take<uint16_t>(), 1, room.size()));
    std::fill_n(room.begin(), bytes, uint8_t{1});
    const uint64_t before = writer.tail();
    writer.Commit({.bytes = bytes, .segment_size = 1});
    Require(ring->tail == writer.tail() && writer.tail() > before);
    Require(writer.tail() - writer.head() <= RingMemory::kCapacity);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzInput input(data, size);
  const auto ring = std::make_unique<RingMemory>();
  if (input.Below(2) == 0) {
    Read(&input, ring.get());
  } else {
    Write(&input, ring.get());
  }
  return 0;
}
