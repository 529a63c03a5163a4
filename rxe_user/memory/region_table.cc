#include "rxe_user/memory/region_table.h"

#include <cerrno>
#include <cstring>
#include <mutex>

#include "rxe_user/base/random.h"
#include "rxe_user/memory/check_region.h"
#include "rxe_user/memory/guarded_copy.h"
#include "rxe_user/memory/persistence.h"

namespace rxe_user {
namespace {

bool IsNullMemory(const uint8_t* bytes) {
  return reinterpret_cast<uint64_t>(bytes) >= kNullMemory;
}

// Whether the bytes are in no region: those of null memory, and of memory keys
// with signatures.
bool IsSpecial(const uint8_t* bytes) {
  return reinterpret_cast<uint64_t>(bytes) >= kSignedMemory;
}

}  // namespace

using transport::MemoryStatus;

// Also false while another thread changes the entry; the map has the region
// then.
bool RegionTable::Recent::Read(uint32_t wanted, Region* out) const {
  const uint32_t before = version.load(std::memory_order_acquire);
  // Acquire loads, so that none moves after the last load of `version`.
  out->key = key.load(std::memory_order_acquire);
  if (out->key != wanted || wanted == 0 || before % 2 != 0) return false;
  out->access = access.load(std::memory_order_acquire);
  out->pd = pd.load(std::memory_order_acquire);
  out->host = host.load(std::memory_order_acquire);
  out->length = length.load(std::memory_order_acquire);
  out->iova = iova.load(std::memory_order_acquire);
  out->binding = binding.load(std::memory_order_acquire);
  return version.load(std::memory_order_relaxed) == before;
}

void RegionTable::Recent::Write(const Region& region) {
  uint32_t before = version.load(std::memory_order_relaxed);
  if (before % 2 != 0 || !version.compare_exchange_strong(
                             before, before + 1, std::memory_order_acq_rel)) {
    return;
  }
  // Release stores, so that none moves before the odd version.
  key.store(region.key, std::memory_order_release);
  access.store(region.access, std::memory_order_release);
  pd.store(region.pd, std::memory_order_release);
  host.store(region.host, std::memory_order_release);
  length.store(region.length, std::memory_order_release);
  iova.store(region.iova, std::memory_order_release);
  binding.store(region.binding, std::memory_order_release);
  version.store(before + 2, std::memory_order_release);
}

bool RegionTable::Find(uint32_t key, Region* out) {
  if (RecentOf(key).Read(key, out)) return true;
  std::shared_lock lock(mutex_);
  return Lookup(key, out);
}

bool RegionTable::FindLocked(uint32_t key, Region* out) {
  return RecentOf(key).Read(key, out) || Lookup(key, out);
}

bool RegionTable::Lookup(uint32_t key, Region* out) {
  const auto it = regions_.find(key);
  if (it != regions_.end()) {
    *out = it->second.region;
  } else {
    const auto window = windows_.find(IdOf(key));
    if (window == windows_.end() || !window->second.bound ||
        window->second.region.key != key) {
      return false;
    }
    *out = window->second.region;
  }
  RecentOf(key).Write(*out);
  return true;
}

MemoryStatus RegionTable::WhyNotFound(uint32_t key) {
  std::shared_lock lock(mutex_);
  return windows_.contains(IdOf(key)) ? MemoryStatus::kWrongWindow
                                      : MemoryStatus::kBadKey;
}

void RegionTable::Forget(uint32_t key) {
  Recent& recent = RecentOf(key);
  if (recent.key.load(std::memory_order_relaxed) == key) recent.Write({});
}

uint32_t RegionTable::Add(const Region& region) {
  Region added = region;
  std::unique_lock lock(mutex_);
  do {
    added.key = SecureRandom32();
  } while (added.key == 0 || regions_.contains(added.key) ||
           windows_.contains(IdOf(added.key)) ||
           mkeys_.contains(IdOf(added.key)));
  regions_.emplace(added.key, Registered{added});
  return added.key;
}

int RegionTable::Replace(const Region& region) {
  std::unique_lock lock(mutex_);
  const auto it = regions_.find(region.key);
  if (it == regions_.end()) return ENOENT;
  if (it->second.windows > 0) return EBUSY;
  it->second.region = region;
  Forget(region.key);
  return 0;
}

int RegionTable::Remove(uint32_t key) {
  std::unique_lock lock(mutex_);
  const auto it = regions_.find(key);
  if (it == regions_.end()) return ENOENT;
  if (it->second.windows > 0) return EBUSY;
  Forget(key);
  regions_.erase(it);
  return 0;
}

void RegionTable::RemoveWithWindows(uint32_t key) {
  if (Remove(key) != EBUSY) return;
  std::unique_lock lock(mutex_);
  for (auto& [id, window] : windows_) {
    if (window.bound && window.region_key == key) Unbind(&window);
  }
  Forget(key);
  regions_.erase(key);
}

MemoryStatus RegionTable::Translate(const transport::MemoryAccess& access,
                                    transport::SpanList* out) {
  Region region;
  if (!Find(access.key, &region)) [[unlikely]] {
    return TranslateMkey(access, out);
  }
  const MemoryStatus status = CheckRegion(region, access);
  if (status != MemoryStatus::kOk) return status;
  out->push_back({HostOf(region, access.va), access.length, IsCold(region)});
  return MemoryStatus::kOk;
}

MemoryStatus RegionTable::Flush(const transport::MemoryAccess& access,
                                bool whole_region) {
  Region region;
  if (!Find(access.key, &region)) return WhyNotFound(access.key);
  transport::MemoryAccess range = access;
  if (whole_region) {
    range.va = region.iova;
    range.length = region.length;
  }
  const MemoryStatus status = Check(range, &region);
  if (status != MemoryStatus::kOk) return status;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if ((access.access & transport::kAccessFlushPersistent) == 0) return status;
  return WriteToMedium(region.host + (range.va - region.iova), range.length)
             ? MemoryStatus::kOk
             : MemoryStatus::kFault;
}

inline MemoryStatus RegionTable::Check(const transport::MemoryAccess& access,
                                       Region* out) {
  if (!Find(access.key, out)) return WhyNotFound(access.key);
  return CheckRegion(*out, access);
}

bool RegionTable::CopyFrom(uint8_t* to, const uint8_t* from, size_t bytes,
                           bool more) {
  if (IsSpecial(from)) [[unlikely]] {
    return CopyFromSpecial(to, from, bytes);
  }
  return GuardedCopyFrom(to, from, bytes, more);
}

bool RegionTable::StreamFrom(uint8_t* to, const uint8_t* from, size_t bytes,
                             bool more) {
  if (IsSpecial(from)) [[unlikely]] {
    return CopyFromSpecial(to, from, bytes);
  }
  return GuardedStreamFrom(to, from, bytes, more);
}

bool RegionTable::CopyFromWithIcrc(uint8_t* to, const uint8_t* from,
                                   size_t bytes, bool more, uint32_t* icrc) {
  if (IsSpecial(from)) [[unlikely]] {
    return Memory::CopyFromWithIcrc(to, from, bytes, more, icrc);
  }
  return GuardedCopyFromWithIcrc(to, from, bytes, more, icrc);
}

bool RegionTable::CopyTo(uint8_t* to, const uint8_t* from, size_t bytes,
                         bool more) {
  if (IsSpecial(to)) [[unlikely]] {
    return CopyToSpecial(to, from, bytes);
  }
  return GuardedCopyTo(to, from, bytes, more);
}

bool RegionTable::Copy(uint8_t* to, const uint8_t* from, size_t bytes) {
  if (IsSpecial(from) || IsSpecial(to)) [[unlikely]] {
    return Memory::Copy(to, from, bytes);
  }
  return CopyTo(to, from, bytes, false);
}

bool RegionTable::CopyFromSpecial(uint8_t* to, const uint8_t* from,
                                  size_t bytes) {
  if (!IsNullMemory(from)) {
    return CopySigned(reinterpret_cast<uint64_t>(from), to, nullptr, bytes);
  }
  std::memset(to, 0, bytes);
  return true;
}

bool RegionTable::CopyToSpecial(uint8_t* to, const uint8_t* from,
                                size_t bytes) {
  return IsNullMemory(to) ||
         CopySigned(reinterpret_cast<uint64_t>(to), nullptr, from, bytes);
}

bool RegionTable::CompareSwap(uint8_t* word, uint64_t compare, uint64_t swap,
                              uint64_t* original) {
  return !IsSpecial(word) && GuardedCompareSwap(word, compare, swap, original);
}

bool RegionTable::FetchAdd(uint8_t* word, uint64_t add, uint64_t* original) {
  return !IsSpecial(word) && GuardedFetchAdd(word, add, original);
}

}  // namespace rxe_user
