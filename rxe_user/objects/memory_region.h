// Registering memory.
#ifndef RXE_USER_OBJECTS_MEMORY_REGION_H_
#define RXE_USER_OBJECTS_MEMORY_REGION_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "rxe_user/memory/region_table.h"
#include "rxe_user/objects/context.h"
#include "rxe_user/objects/device_memory.h"

namespace rxe_user {

// Thread: any, one call at a time for one region.
class MemoryRegion {
 public:
  // `access` is of transport::Access. With kAccessZeroBased, `iova` is ignored
  // and 0. Fails with EINVAL (remote write or atomic without local write, a
  // range that wraps around, unknown access), EFAULT (not mapped, or not
  // writable while writing is asked for). EINVAL also for
  // kAccessFlushPersistent of memory that has no medium (memory/persistence.h).
  //
  // With kAccessOnDemand nothing need be mapped yet: uses of the region tell.
  // If the address is 0 and the length UINT64_MAX, too, it is the whole address
  // space (implicit on-demand paging).
  static int Register(ProtectionDomain& pd, void* address, uint64_t length,
                      uint64_t iova, uint32_t access,
                      std::unique_ptr<MemoryRegion>* out);
  // ibv_alloc_null_mr(3): any address, of the upper half excepted; no R_Key.
  // Its domain may be deallocated before it, as on hardware, where it is a key
  // that the device always has; then domain() must not be called.
  static std::unique_ptr<MemoryRegion> Null(ProtectionDomain& pd);
  // ibv_reg_dm_mr(3): zero-based, as `access` has to say. Keeps `memory`.
  static int RegisterDeviceMemory(ProtectionDomain& pd,
                                  std::shared_ptr<DeviceMemory> memory,
                                  uint64_t offset, uint64_t length,
                                  uint32_t access,
                                  std::unique_ptr<MemoryRegion>* out);

  // Withdraws the key, and leaves its domain and device memory. When it
  // returns, nothing reaches the memory any more, and nothing but withdrawn()
  // and the destructor may be called. EBUSY, and nothing has changed: a window
  // is bound to it.
  int Withdraw();
  bool withdrawn() const { return withdrawn_; }
  // Withdraws it in any case, and unbinds its windows.
  ~MemoryRegion();

  // ibv_rereg_mr(3). Each null or negative part stays as it is. The key stays
  // the same. Errors as Register; then the region is as it was. EINVAL also for
  // null regions and device memory, EBUSY while a window is bound.
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
  Context& context() const { return context_; }
  ProtectionDomain& domain() const { return *pd_; }
  const Region& region() const { return region_; }
  // As the application registered it: null for null regions and device memory.
  void* address() const { return address_; }
  uint64_t length() const { return length_; }
  bool is_null() const { return kind_ == Kind::kNull; }

 private:
  enum class Kind { kMemory, kNull, kDevice };

  MemoryRegion(ProtectionDomain& pd, Kind kind, const Region& region,
               void* address, uint64_t length);
  // Nothing uses the domain and the device memory any more.
  void Leave();

  Context& context_;
  ProtectionDomain* pd_;
  const Kind kind_;
  Region region_;
  void* address_;
  uint64_t length_;
  std::shared_ptr<DeviceMemory> device_memory_;
  std::atomic<bool> withdrawn_ = false;
};

}  // namespace rxe_user

#endif  // RXE_USER_OBJECTS_MEMORY_REGION_H_
