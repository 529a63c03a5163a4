#include "rxe_user/faults/faulted_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace rxe_user {

using transport::MemoryAccess;
using transport::MemoryStatus;
using transport::Time;

namespace {

// The longest access is a message of 2^31 bytes. It begins at an offset that
// keeps the alignment of atomics.
constexpr size_t kAlignment = 8;
constexpr size_t kBytes = (size_t{1} << 31) + kAlignment;

// Whether the device reads memory, as for SEND, WRITE and the READ of a peer.
bool Reads(const MemoryAccess& access) {
  return access.access == 0 ||
         (access.access & transport::kAccessRemoteRead) != 0;
}

}  // namespace

FaultedMemory::~FaultedMemory() {
  if (pages_ != nullptr) ::munmap(pages_, kBytes);
}

MemoryStatus FaultedMemory::Translate(const MemoryAccess& access,
                                      transport::SpanList* out) {
  const size_t before = out->size();
  const MemoryStatus status = behind_.Translate(access, out);
  if (status != MemoryStatus::kOk || !IsGone(access)) return status;
  uint8_t* const pages = Pages();
  if (pages == nullptr) {
    out->resize(before);
    return MemoryStatus::kFault;
  }
  for (size_t i = before; i < out->size(); ++i) {
    transport::Span& span = (*out)[i];
    const auto offset = reinterpret_cast<uintptr_t>(span.data) % kAlignment;
    span.data = pages + offset;
    span.length = std::min(span.length, kBytes - offset);
    span.cold = false;
  }
  return status;
}

uint8_t* FaultedMemory::Pages() {
  const std::lock_guard lock(mutex_);
  if (pages_ != nullptr) return pages_;
  void* const pages =
      ::mmap(nullptr, kBytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages != MAP_FAILED) pages_ = static_cast<uint8_t*>(pages);
  return pages_;
}

MemoryStatus FaultedMemory::Flush(const MemoryAccess& access,
                                  bool whole_region) {
  const MemoryStatus status = behind_.Flush(access, whole_region);
  if (status != MemoryStatus::kOk) return status;
  return IsGone(access) ? MemoryStatus::kFault : status;
}

bool FaultedMemory::IsGone(const MemoryAccess& access) {
  const bool unmaps = faults_.unmaps();
  if (!unmaps && !has_gone_.load(std::memory_order_relaxed)) return false;
  const Time now = ProcessFaults::Now();
  const std::lock_guard lock(mutex_);
  std::erase_if(gone_, [&](const UnmappedRange& gone) {
    return !faults_.IsValid(*gone.rule, now);
  });
  for (const UnmappedRange& gone : gone_) {
    if (gone.key == access.key && access.va < gone.va + gone.length &&
        gone.va < access.va + access.length) {
      return true;
    }
  }
  const transport::faults::Rule* const rule =
      unmaps ? faults_.DecideTransfer({.reads = Reads(access),
                                       .qpn = access.qpn,
                                       .bytes = access.length},
                                      now)
             : nullptr;
  if (rule != nullptr) {
    try {
      gone_.push_back({.key = access.key,
                       .va = access.va,
                       .length = access.length,
                       .rule = rule});
    } catch (const std::bad_alloc&) {
      // Not recorded, so only this access fails.
    }
  }
  has_gone_.store(!gone_.empty(), std::memory_order_relaxed);
  return rule != nullptr;
}

}  // namespace rxe_user
