// Registering memory.
#ifndef RXE_USER_OBJECTS_MEMORY_REGION_H_
#define RXE_USER_OBJECTS_MEMORY_REGION_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "rxe_user/memory/region_table.h"
#include "rxe_user/objects/context.h"

namespace rxe_user {

// Thread: any, one call at a time for one region.
class MemoryRegion {
 public:
  // `access` is of transport::Access. With kAccessZeroBased, `iova` is ignored
  // and 0. Fails with EINVAL (remote write or atomic without local write, a
  // range that wraps around, unknown access), EFAULT (not mapped, or not
  // writable while writing is asked for), EOPNOTSUPP (on demand paging).
  static int Register(ProtectionDomain& pd, void* address, uint64_t length,
                      uint64_t iova, uint32_t access,
                      std::unique_ptr<MemoryRegion>* out);

  // Withdraws the key. When it returns, nothing reaches the memory any more.
  ~MemoryRegion();

  // ibv_rereg_mr(3). Each null or negative part stays as it is. The key stays
  // the same. Errors as Register; then the region is as it was.
  struct Change {
    ProtectionDomain* pd = nullptr;
    bool translation = false;
    void* address = nullptr;
    uint64_t length = 0;
    bool rights = false;
    uint32_t access = 0;
  };
  int Reregister(const Change& change);

  uint32_t key() const { return region_.key; }
  ProtectionDomain& domain() const { return *pd_; }
  const Region& region() const { return region_; }

  // Windows that are bound to it, and imported handles of it.
  std::atomic<int> users{0};

 private:
  MemoryRegion(ProtectionDomain& pd, const Region& region);

  ProtectionDomain* pd_;
  Region region_;
};

}  // namespace rxe_user

#endif  // RXE_USER_OBJECTS_MEMORY_REGION_H_
