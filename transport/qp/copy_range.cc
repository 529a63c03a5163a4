#include "transport/qp/copy_range.h"

#include <algorithm>

namespace transport {
namespace {

// Walks through a range, span by span.
class Cursor {
 public:
  Cursor(Memory* memory, const MemoryAccess& access)
      : memory_(memory), rest_(access) {}

  // Makes sure that there is a span, unless the range ends.
  MemoryStatus Fill() {
    if (next_ < spans_.size() || rest_.length == 0) return MemoryStatus::kOk;
    spans_.clear();
    next_ = 0;
    const MemoryStatus status = memory_->Translate(rest_, &spans_);
    if (status != MemoryStatus::kOk) return status;
    for (const Span& span : spans_) {
      rest_.va += span.length;
      rest_.length -= span.length;
    }
    return status;
  }
  Span& span() { return spans_[next_]; }
  void Advance(size_t bytes) {
    span().data += bytes;
    span().length -= bytes;
    if (span().length == 0) ++next_;
  }

 private:
  Memory* const memory_;
  MemoryAccess rest_;  // not translated yet
  SpanList spans_;
  size_t next_ = 0;
};

}  // namespace

MemoryStatus CopyRange(Memory* memory, MemoryAccess from, MemoryAccess to) {
  uint64_t left = from.length;
  Cursor source(memory, from);
  Cursor destination(memory, to);
  while (left > 0) {
    for (Cursor* cursor : {&source, &destination}) {
      const MemoryStatus status = cursor->Fill();
      if (status != MemoryStatus::kOk) return status;
    }
    const size_t bytes =
        std::min(source.span().length, destination.span().length);
    if (!memory->Copy(destination.span().data, source.span().data, bytes)) {
      return MemoryStatus::kFault;
    }
    source.Advance(bytes);
    destination.Advance(bytes);
    left -= bytes;
  }
  return MemoryStatus::kOk;
}

}  // namespace transport
