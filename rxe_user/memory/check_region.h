// The checks that every use of a region shares, whatever kind of key it came
// by. For the source files of RegionTable.
#ifndef RXE_USER_MEMORY_CHECK_REGION_H_
#define RXE_USER_MEMORY_CHECK_REGION_H_

#include <cstdint>

#include "rxe_user/memory/region_table.h"
#include "transport/base/memory.h"

namespace rxe_user {

inline bool IsBoundTo(const Region& window,
                      const transport::MemoryAccess& access) {
  const uint32_t qpn = window.binding & ~kWindow;
  return access.remote && (qpn == 0 || qpn == access.qpn);
}

// Whether `region`, found by `access.key`, permits the access.
inline transport::MemoryStatus CheckRegion(
    const Region& region, const transport::MemoryAccess& access) {
  using transport::MemoryStatus;
  if (region.pd != access.pd) return MemoryStatus::kWrongDomain;
  if (region.binding != 0 && !IsBoundTo(region, access)) [[unlikely]] {
    return MemoryStatus::kWrongWindow;
  }
  if (!region.Covers(access.va, access.length)) {
    return MemoryStatus::kOutOfRange;
  }
  if ((region.access & access.access) != access.access) {
    return MemoryStatus::kNoRight;
  }
  return MemoryStatus::kOk;
}

// The address of the byte at `va`. Computed with integers, since the whole
// address space begins at a null pointer.
inline uint8_t* HostOf(const Region& region, uint64_t va) {
  return reinterpret_cast<uint8_t*>(reinterpret_cast<uintptr_t>(region.host) +
                                    (va - region.iova));
}

// Bytes: twice the size of a current core's private cache. Smaller regions are
// mostly cached, and a prefetch would only take time.
inline constexpr uint64_t kColdRegion = 4 << 20;

inline bool IsCold(const Region& region) {
  return region.length >= kColdRegion;
}

}  // namespace rxe_user

#endif  // RXE_USER_MEMORY_CHECK_REGION_H_
