#include "transport/base/local_buffer.h"

#include <algorithm>

#include "wire/icrc.h"

namespace transport {

inline MemoryStatus LocalBuffer::Next(size_t bytes, Span* out) {
  while (next_ == end_) {
    if (sge_ == sges_.size()) return MemoryStatus::kOutOfRange;
    const Sge& sge = sges_[sge_];
    spans_.clear();
    next_ = end_ = nullptr;
    const MemoryStatus status = memory_.Translate(
        {.key = sge.lkey,
         .pd = pd_,
         .qpn = qpn_,
         .access = access_,
         .va = sge.addr + sge_offset_,
         .length = std::min<size_t>(sge.length - sge_offset_, piece_)},
        &spans_);
    if (status != MemoryStatus::kOk) return status;
    next_ = spans_.data();
    end_ = next_ + spans_.size();
    // With a memory key, they may be fewer bytes than the SGE.
    size_t translated = next_->length;
    for (const Span* span = next_ + 1; span != end_; ++span) {
      translated += span->length;
    }
    sge_offset_ += static_cast<uint32_t>(translated);
    if (sge_offset_ == sge.length) {
      ++sge_;
      sge_offset_ = 0;
    }
  }
  Span& span = *next_;
  *out = {span.data, std::min(bytes, span.length), span.cold};
  span.data += out->length;
  span.length -= out->length;
  if (span.length == 0) ++next_;
  return MemoryStatus::kOk;
}

bool LocalBuffer::MoreBehind(const Span& span) const {
  if (!span.cold) return false;
  if (next_ == end_) return sge_offset_ != 0;
  return next_->data == span.data + span.length;
}

MemoryStatus LocalBuffer::Read(uint8_t* to, size_t bytes, uint32_t* icrc,
                               bool streams) {
  const std::span<const uint8_t> all(to, bytes);
  bool carried = false;
  while (bytes > 0) {
    Span span;
    const MemoryStatus status = Next(bytes, &span);
    if (status != MemoryStatus::kOk) return status;
    // The ICRC is computed during the copy only if there is a single span.
    // Otherwise one pass afterwards is faster.
    carried = icrc != nullptr && span.length == all.size();
    const bool copied =
        carried ? memory_.CopyFromWithIcrc(to, span.data, span.length,
                                           MoreBehind(span), icrc)
        : streams
            ? memory_.StreamFrom(to, span.data, span.length, MoreBehind(span))
            : memory_.CopyFrom(to, span.data, span.length, MoreBehind(span));
    if (!copied) return MemoryStatus::kFault;
    to += span.length;
    bytes -= span.length;
  }
  if (icrc != nullptr && !carried) *icrc = wire::IcrcFlow::Extend(*icrc, all);
  return MemoryStatus::kOk;
}

MemoryStatus LocalBuffer::Write(const uint8_t* from, size_t bytes) {
  while (bytes > 0) {
    Span span;
    const MemoryStatus status = Next(bytes, &span);
    if (status != MemoryStatus::kOk) return status;
    if (!memory_.CopyTo(span.data, from, span.length, MoreBehind(span))) {
      return MemoryStatus::kFault;
    }
    from += span.length;
    bytes -= span.length;
  }
  return MemoryStatus::kOk;
}

MemoryStatus LocalBuffer::Check(size_t bytes) {
  while (bytes > 0) {
    Span span;
    const MemoryStatus status = Next(bytes, &span);
    if (status != MemoryStatus::kOk) return status;
    bytes -= span.length;
  }
  return MemoryStatus::kOk;
}

}  // namespace transport
