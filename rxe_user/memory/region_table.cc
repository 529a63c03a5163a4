#include "rxe_user/memory/region_table.h"

#include <mutex>

#include "rxe_user/memory/guarded_copy.h"
#include "rxe_user/memory/random.h"

namespace rxe_user {

using transport::MemoryStatus;

uint32_t RegionTable::Add(const Region& region) {
  Region added = region;
  std::unique_lock lock(mutex_);
  do {
    added.key = SecureRandom32();
  } while (added.key == 0 || regions_.contains(added.key));
  regions_.emplace(added.key, added);
  return added.key;
}

bool RegionTable::Replace(const Region& region) {
  std::unique_lock lock(mutex_);
  auto it = regions_.find(region.key);
  if (it == regions_.end()) return false;
  it->second = region;
  return true;
}

bool RegionTable::Remove(uint32_t key) {
  std::unique_lock lock(mutex_);
  return regions_.erase(key) != 0;
}

MemoryStatus RegionTable::Translate(const transport::MemoryAccess& access,
                                    transport::SpanList* out) {
  Region region;
  {
    std::shared_lock lock(mutex_);
    auto it = regions_.find(access.key);
    if (it == regions_.end()) return MemoryStatus::kBadKey;
    region = it->second;
  }
  if (region.pd != access.pd) return MemoryStatus::kBadKey;
  // Unsigned differences: right for every va and length.
  const uint64_t offset = access.va - region.iova;
  if (access.va < region.iova || offset > region.length ||
      access.length > region.length - offset) {
    return MemoryStatus::kOutOfRange;
  }
  if ((region.access & access.access) != access.access) {
    return MemoryStatus::kNoRight;
  }
  out->push_back({region.host + offset, access.length});
  return MemoryStatus::kOk;
}

bool RegionTable::CopyFrom(uint8_t* to, const uint8_t* from, size_t bytes) {
  return GuardedCopyFrom(to, from, bytes);
}

bool RegionTable::CopyTo(uint8_t* to, const uint8_t* from, size_t bytes) {
  return GuardedCopyTo(to, from, bytes);
}

bool RegionTable::CompareSwap(uint8_t* word, uint64_t compare, uint64_t swap,
                              uint64_t* original) {
  return GuardedCompareSwap(word, compare, swap, original);
}

bool RegionTable::FetchAdd(uint8_t* word, uint64_t add, uint64_t* original) {
  return GuardedFetchAdd(word, add, original);
}

MemoryStatus RegionTable::Invalidate(uint32_t rkey, transport::PdId pd,
                                     uint32_t /*qpn*/) {
  std::shared_lock lock(mutex_);
  auto it = regions_.find(rkey);
  if (it == regions_.end() || it->second.pd != pd) return MemoryStatus::kBadKey;
  return MemoryStatus::kNoRight;
}

}  // namespace rxe_user
