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

// A position: mostly one that could be right, beside `least`, the smallest.
uint64_t Position(FuzzInput* input, uint64_t least) {
  switch (input->Below(16)) {
    case 0:
      return input->Take<uint64_t>();
    case 1:
      return least + static_cast<uint64_t>(int64_t{input->Signed()});
    default:
      return least +
             RingMemory::kAlign * (input->Take<uint16_t>() % kUnits + 1);
  }
}

// What the other end stores into the records: a header, mostly at `position`,
// or any bytes. Returns how many bytes that record should take.
uint64_t Scribble(FuzzInput* input, uint64_t position, RingMemory* ring) {
  const uint32_t kind = input->Below(8);
  if (kind == 0) {
    position = RingMemory::kAlign * uint64_t{input->Take<uint16_t>()};
  }
  uint8_t* const at = ring->records + position % RingMemory::kCapacity;
  if (kind == 1) {
    const std::span<const uint8_t> bytes = input->Bytes(RingMemory::kAlign);
    std::copy(bytes.begin(), bytes.end(), at);
    return RingMemory::kAlign;
  }
  const RecordHeader header = {
      .bytes = kind == 2 ? input->Take<uint32_t>()
                         : input->Take<uint16_t>() %
                               (uint32_t{RingWriter::kMaxBytes} + 64),
      .segment_size = kind == 3 ? input->Take<uint16_t>() : uint16_t{1024}};
  std::memcpy(at, &header, sizeof(header));
  return (sizeof(header) + uint64_t{header.bytes} + RingMemory::kAlign - 1) &
         ~uint64_t{RingMemory::kAlign - 1};
}

void Read(FuzzInput* input, RingMemory* ring) {
  RingReader reader(ring);
  uint64_t right = 0;
  while (!input->empty()) {
    const uint64_t record = Scribble(input, right, ring);
    ring->tail =
        input->Below(16) == 0 ? Position(input, right) : right + record;
    std::vector<uint8_t> out(input->Below(8) == 0 ? input->Take<uint16_t>()
                                                  : RingWriter::kMaxBytes);
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
    Scribble(input, writer.tail(), ring);
    if (input->Below(2) == 0) {
      const uint64_t head = Position(input, writer.head());
      ring->head = input->Below(8) == 0 ? head : std::min(head, writer.tail());
    }
    const bool was_broken = writer.broken();
    const std::span<uint8_t> room = writer.Reserve();
    Require(room.empty() || !was_broken);
    if (room.empty()) {
      (void)writer.HasRoom();
      (void)writer.IsRead();
      continue;
    }
    Require(room.data() > ring->records && room.data() + room.size() <= end);
    Require(room.size() >= RingWriter::kMinBytes &&
            room.size() <= RingWriter::kMaxBytes);
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
