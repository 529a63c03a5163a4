// Copies between packets and the local buffers of a send work request.
#ifndef TRANSPORT_BASE_LOCAL_BUFFER_H_
#define TRANSPORT_BASE_LOCAL_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/base/memory.h"
#include "transport/base/types.h"

namespace transport {

// A position in the bytes of a list of SGEs. Keys are checked once per piece of
// at most kPiece bytes, so consecutive packets share a check. Lives within one
// call under the lane's lock: its spans are invalid after that.
class LocalBuffer {
 public:
  // 64 KiB: the payload of one burst.
  static constexpr size_t kPiece = 64 * 1024;

  // `access`: 0 to read, kAccessLocalWrite to write. `piece`: how far ahead
  // keys are checked, in bytes.
  LocalBuffer(Memory& memory, PdId pd, uint32_t qpn, uint32_t access,
              size_t piece = kPiece)
      : memory_(memory), pd_(pd), qpn_(qpn), access_(access), piece_(piece) {}
  LocalBuffer(const LocalBuffer&) = delete;
  LocalBuffer& operator=(const LocalBuffer&) = delete;

  // Moves to byte `offset` of `sges`. No SGE has length 0; `sges` must outlive
  // the following calls.
  void Seek(std::span<const Sge> sges, uint64_t offset) {
    sges_ = sges;
    next_ = end_ = nullptr;
    sge_ = 0;
    while (sge_ < sges_.size() && offset >= sges_[sge_].length) {
      offset -= sges_[sge_++].length;
    }
    sge_offset_ = static_cast<uint32_t>(offset);
  }

  // Copies `bytes` from this position to `to`, or from `from` to this position,
  // and advances. `icrc`, if given, is extended over the bytes read
  // (Memory::CopyFromWithIcrc). `streams`: `icrc` is null, and the bytes are
  // for another process (Memory::StreamFrom).
  MemoryStatus Read(uint8_t* to, size_t bytes, uint32_t* icrc = nullptr,
                    bool streams = false);
  MemoryStatus Write(const uint8_t* from, size_t bytes);
  // Checks the keys and advances, without copying.
  MemoryStatus Check(size_t bytes);

 private:
  // The next contiguous bytes, at most `bytes`; null data on error.
  MemoryStatus Next(size_t bytes, Span* out);
  // Whether `span` (from Next) is cold and its SGE continues after it.
  bool MoreBehind(const Span& span) const;

  Memory& memory_;
  const PdId pd_;
  const uint32_t qpn_;
  const uint32_t access_;
  const size_t piece_;

  // --- Set by Seek.
  std::span<const Sge> sges_;
  size_t sge_;
  uint32_t sge_offset_;  // next byte to translate into spans_
  // Those of spans_ that are not copied yet; the first one may be in part.
  Span* next_;
  Span* end_;

  SpanList spans_;  // of the last translation
};

}  // namespace transport

#endif  // TRANSPORT_BASE_LOCAL_BUFFER_H_
