// Copies between packets and the local buffers of a send work request.
#ifndef TRANSPORT_BASE_LOCAL_BUFFER_H_
#define TRANSPORT_BASE_LOCAL_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/base/memory.h"
#include "transport/base/types.h"

namespace transport {

// A position in the bytes that a list of SGEs names. Keys are checked when the
// position enters a piece of at most kPiece bytes of an SGE, so packets that
// follow each other share a check. Lives within one call by the lane: spans do
// not outlive its lock.
class LocalBuffer {
 public:
  // 64 KiB: as much as one burst carries.
  static constexpr size_t kPiece = 64 * 1024;

  // `access`: 0 to read, kAccessLocalWrite to write. `piece` bounds how far
  // ahead keys are checked.
  LocalBuffer(Memory& memory, PdId pd, uint32_t qpn, uint32_t access,
              size_t piece = kPiece)
      : memory_(memory), pd_(pd), qpn_(qpn), access_(access), piece_(piece) {}

  // Stands at byte `offset` of `sges`, none of which has length 0, and which
  // outlive the next calls.
  void Seek(std::span<const Sge> sges, uint64_t offset);

  // Copies `bytes` from here on to `to`, or `from` to here; moves on. `icrc`,
  // if given, is continued over what was read (Memory::CopyFromWithIcrc).
  MemoryStatus Read(uint8_t* to, size_t bytes, uint32_t* icrc = nullptr);
  MemoryStatus Write(const uint8_t* from, size_t bytes);
  // Moves on without copying: only the checks.
  MemoryStatus Check(size_t bytes);

 private:
  // The next bytes in one piece, at most `bytes`; null data on error.
  MemoryStatus Next(size_t bytes, Span* out);
  // Whether `span`, which Next gave, is cold and its SGE goes on behind it.
  bool MoreBehind(const Span& span) const;

  Memory& memory_;
  const PdId pd_;
  const uint32_t qpn_;
  const uint32_t access_;
  const size_t piece_;
  std::span<const Sge> sges_;
  size_t sge_ = 0;
  uint32_t sge_offset_ = 0;  // of what is not yet in spans_
  SpanList spans_;
  size_t span_ = 0;
};

}  // namespace transport

#endif  // TRANSPORT_BASE_LOCAL_BUFFER_H_
