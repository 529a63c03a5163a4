// A registered memory region (ibv_reg_mr(3)).
#ifndef RXE_USER_OBJECTS_MEMORY_REGION_H_
#define RXE_USER_OBJECTS_MEMORY_REGION_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "rxe_user/memory/region_table.h"
#include "rxe_user/objects/context.h"
#include "rxe_user/objects/device_memory.h"

namespace rxe_user {

// Thread: any; one call at a time for a region.
class MemoryRegion {
 public:
  // `access`: transport::Access bits. With kAccessZeroBased, `iova` is ignored
  // and taken as 0. EINVAL: remote write or atomic without local write, a range
  // that wraps around, unknown access, kAccessFlushPersistent for memory
  // without a persistent medium (memory/persistence.h). EFAULT: not mapped, or
  // not writable although write access is requested.
  //
  // With kAccessOnDemand the memory need not be mapped yet: accesses check it.
  // With address 0 and length UINT64_MAX as well, the region is the whole
  // address space (implicit on-demand paging).
  static int Register(ProtectionDomain& pd, void* address, uint64_t length,
                      uint64_t iova, uint32_t access,
                      std::unique_ptr<MemoryRegion>* out);
  // ibv_alloc_null_mr(3): covers every address below the upper half of the
  // address space; has no R_Key. Its domain may be deallocated first, as on
  // hardware, where the key always exists; domain() must not be called after
  // that.
  static std::unique_ptr<MemoryRegion> Null(ProtectionDomain& pd);
  // ibv_reg_dm_mr(3): zero-based, so `access` must contain kAccessZeroBased.
  // Shares ownership of `memory`.
  static int RegisterDeviceMemory(ProtectionDomain& pd,
                                  std::shared_ptr<DeviceMemory> memory,
                                  uint64_t offset, uint64_t length,
                                  uint32_t access,
                                  std::unique_ptr<MemoryRegion>* out);

  // Removes the key, and releases the domain and device memory. On return
  // nothing accesses the memory any more; only withdrawn() and the destructor
  // may be called. EBUSY, without effect: a window is bound to it.
  int Withdraw();
  bool withdrawn() const { return withdrawn_; }
  // Withdraws it in any case, and unbinds its windows.
  ~MemoryRegion();

  // ibv_rereg_mr(3). Parts that are null or false are unchanged, as is the key.
  // Errors as Register, without effect; also EINVAL for null regions and device
  // memory, EBUSY while a window is bound.
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
  // As the application registered it. Null for null regions and device memory.
  void* address() const { return address_; }
  uint64_t length() const { return length_; }
  bool is_null() const { return kind_ == Kind::kNull; }

 private:
  enum class Kind { kMemory, kNull, kDevice };

  MemoryRegion(ProtectionDomain& pd, Kind kind, const Region& region,
               void* address, uint64_t length);
  // Releases the domain and the device memory.
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
