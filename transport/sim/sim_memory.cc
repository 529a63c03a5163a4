#include "transport/sim/sim_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "transport/sim/random.h"

namespace sim {

using transport::MemoryStatus;

PatternMemory::PatternMemory(uint64_t bytes, uint64_t salt)
    : size_(bytes), salt_(salt) {
  void* p = mmap(nullptr, bytes, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  data_ = p == MAP_FAILED ? nullptr : static_cast<uint8_t*>(p);
}

PatternMemory::~PatternMemory() {
  if (data_ != nullptr) munmap(data_, size_);
}

void PatternMemory::Generate(uint8_t* to, uint64_t offset, size_t bytes) const {
  while (bytes > 0) {
    const size_t skip = offset % 8;
    const size_t n = std::min<size_t>(8 - skip, bytes);
    const uint64_t word = Word(offset / 8);
    if (n == 8) {
      std::memcpy(to, &word, 8);
    } else {
      std::memcpy(to, reinterpret_cast<const uint8_t*>(&word) + skip, n);
    }
    to += n;
    offset += n;
    bytes -= n;
  }
}

bool PatternMemory::Check(const uint8_t* from, uint64_t offset, size_t bytes) {
  const uint64_t first = offset;
  const size_t total = bytes;
  bool good = true;
  while (bytes > 0) {
    const size_t skip = offset % 8;
    const size_t n = std::min<size_t>(8 - skip, bytes);
    const uint64_t word = Word(offset / 8);
    good &= std::memcmp(from, reinterpret_cast<const uint8_t*>(&word) + skip,
                        n) == 0;
    from += n;
    offset += n;
    bytes -= n;
  }
  written_ += total;
  if (first == written_in_order_) written_in_order_ += total;
  if (!good) mismatch_ = true;
  return good;
}

Region SimMemory::Register(transport::PdId pd, uint8_t* data, uint64_t va,
                           uint64_t length, uint32_t access) {
  ++next_key_;
  Region region;
  region.lkey = static_cast<uint32_t>(Mix(2 * next_key_)) | 1;
  region.rkey = static_cast<uint32_t>(Mix(2 * next_key_ + 1)) & ~1u;
  region.pd = pd;
  region.access = access;
  region.va = va;
  region.length = length;
  region.data = data;
  regions_[region.lkey] = region;
  lkey_of_[region.rkey] = region.lkey;
  AddExtent(data, data + length);
  return region;
}

Region* SimMemory::FindByLkey(uint32_t lkey) {
  const auto it = regions_.find(lkey);
  return it == regions_.end() ? nullptr : &it->second;
}

Region* SimMemory::FindByRkey(uint32_t rkey) {
  const auto it = lkey_of_.find(rkey);
  return it == lkey_of_.end() ? nullptr : FindByLkey(it->second);
}

void SimMemory::Deregister(uint32_t lkey) {
  if (Region* region = FindByLkey(lkey); region != nullptr) {
    lkey_of_.erase(region->rkey);
    regions_.erase(lkey);
  }
}

void SimMemory::AddFault(const uint8_t* data, size_t length) {
  faults_.push_back({data, length});
}

bool SimMemory::Faults(const uint8_t* data, size_t bytes) const {
  for (const Fault& fault : faults_) {
    if (data < fault.data + fault.length && fault.data < data + bytes) {
      return true;
    }
  }
  return false;
}

void SimMemory::AddExtent(const uint8_t* begin, const uint8_t* end) {
  // Merges adjacent extents.
  auto it = extents_.upper_bound(begin);
  if (it != extents_.begin() && std::prev(it)->second >= begin) --it;
  while (it != extents_.end() && it->first <= end) {
    begin = std::min(begin, it->first);
    end = std::max(end, it->second);
    it = extents_.erase(it);
  }
  extents_[begin] = end;
}

bool SimMemory::CheckInside(const uint8_t* data, size_t bytes,
                            const char* what) {
  const auto it = extents_.upper_bound(data);
  if (it != extents_.begin() && data + bytes <= std::prev(it)->second) {
    return true;
  }
  checker_->Fail(absl::StrCat("memory: ", what, " of ", bytes,
                              " bytes outside every region"));
  return false;
}

PatternMemory* SimMemory::PatternOf(const uint8_t* data) const {
  for (PatternMemory* pattern : patterns_) {
    if (pattern->Contains(data)) return pattern;
  }
  return nullptr;
}

MemoryStatus SimMemory::Translate(const transport::MemoryAccess& access,
                                  transport::SpanList* out) {
  if (access.length == 0) {
    checker_->Fail("memory: Translate of no bytes");
    return MemoryStatus::kOutOfRange;
  }
  const Region* region =
      access.remote ? FindByRkey(access.key) : FindByLkey(access.key);
  if (region == nullptr || region->invalidated) return MemoryStatus::kBadKey;
  if (region->pd != access.pd) return MemoryStatus::kWrongDomain;
  if (access.remote && region->bound_qpn != 0 &&
      region->bound_qpn != access.qpn) {
    return MemoryStatus::kWrongWindow;
  }
  if (access.length > region->length || access.va < region->va ||
      access.va - region->va > region->length - access.length) {
    return MemoryStatus::kOutOfRange;
  }
  if ((access.access & ~region->access) != 0) return MemoryStatus::kNoRight;
  uint8_t* data = region->data + (access.va - region->va);
  if (translate_faults_ && Faults(data, access.length)) {
    return MemoryStatus::kFault;
  }
  uint64_t va = access.va;
  uint64_t left = access.length;
  while (left > 0 && !out->full()) {
    uint64_t n = left;
    if (span_bytes_ != 0) n = std::min(n, span_bytes_ - va % span_bytes_);
    out->push_back({data, n});
    va += n;
    data += n;
    left -= n;
  }
  return MemoryStatus::kOk;
}

bool SimMemory::CopyFrom(uint8_t* to, const uint8_t* from, size_t bytes, bool) {
  if (!CheckInside(from, bytes, "CopyFrom")) return false;
  if (!faults_.empty() && Faults(from, bytes)) return false;
  bytes_from_ += bytes;
  if (const PatternMemory* pattern = PatternOf(from); pattern != nullptr) {
    pattern->Generate(to, from - pattern->data(), bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
  return true;
}

bool SimMemory::CopyTo(uint8_t* to, const uint8_t* from, size_t bytes, bool) {
  if (!CheckInside(to, bytes, "CopyTo")) return false;
  if (!faults_.empty() && Faults(to, bytes)) return false;
  bytes_to_ += bytes;
  if (PatternMemory* pattern = PatternOf(to); pattern != nullptr) {
    if (!pattern->Check(from, to - pattern->data(), bytes)) {
      checker_->Fail(absl::StrCat("memory: wrong bytes written at offset ",
                                  to - pattern->data()));
    }
  } else {
    std::memcpy(to, from, bytes);
  }
  return true;
}

bool SimMemory::CompareSwap(uint8_t* word, uint64_t compare, uint64_t swap,
                            uint64_t* original) {
  if (!CheckInside(word, 8, "CompareSwap") || Faults(word, 8)) return false;
  if (reinterpret_cast<uintptr_t>(word) % 8 != 0) {
    checker_->Fail("memory: misaligned CompareSwap");
    return false;
  }
  ++atomics_;
  std::memcpy(original, word, 8);
  if (*original == compare) std::memcpy(word, &swap, 8);
  return true;
}

bool SimMemory::FetchAdd(uint8_t* word, uint64_t add, uint64_t* original) {
  if (!CheckInside(word, 8, "FetchAdd") || Faults(word, 8)) return false;
  if (reinterpret_cast<uintptr_t>(word) % 8 != 0) {
    checker_->Fail("memory: misaligned FetchAdd");
    return false;
  }
  ++atomics_;
  std::memcpy(original, word, 8);
  const uint64_t sum = *original + add;
  std::memcpy(word, &sum, 8);
  return true;
}

MemoryStatus SimMemory::Flush(const transport::MemoryAccess& access,
                              bool whole_region) {
  const Region* region = FindByRkey(access.key);
  if (region == nullptr) return MemoryStatus::kBadKey;
  transport::MemoryAccess range = access;
  if (whole_region) {
    range.va = region->va;
    range.length = region->length;
  }
  transport::SpanList spans;
  return Translate(range, &spans);
}

MemoryStatus SimMemory::Bind(const transport::WindowBinding& binding) {
  Region* region = FindByRkey(binding.rkey);
  if (region == nullptr || !region->is_window || region->pd != binding.pd) {
    return MemoryStatus::kBadKey;
  }
  if (!region->invalidated) return MemoryStatus::kNoRight;
  region->invalidated = false;
  region->bound_qpn = binding.qpn;
  return MemoryStatus::kOk;
}

MemoryStatus SimMemory::Invalidate(
    const transport::Invalidation& invalidation) {
  Region* region = FindByRkey(invalidation.rkey);
  if (region == nullptr || region->pd != invalidation.pd ||
      region->invalidated) {
    return MemoryStatus::kBadKey;
  }
  if (region->bound_qpn != 0 && region->bound_qpn != invalidation.qpn) {
    return MemoryStatus::kBadKey;
  }
  if (!region->may_invalidate) return MemoryStatus::kNoRight;
  region->invalidated = true;
  return MemoryStatus::kOk;
}

}  // namespace sim
