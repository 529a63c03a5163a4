#include "rxe_user/objects/memory_region.h"

#include <cerrno>
#include <utility>

#include "rxe_user/memory/guarded_copy.h"
#include "rxe_user/memory/persistence.h"
#include "rxe_user/memory/probe.h"
#include "rxe_user/objects/limits.h"

namespace rxe_user {
namespace {

using transport::kAccessFlushGlobal;
using transport::kAccessFlushPersistent;
using transport::kAccessHugeTlb;
using transport::kAccessLocalWrite;
using transport::kAccessMwBind;
using transport::kAccessOnDemand;
using transport::kAccessRemoteAtomic;
using transport::kAccessRemoteRead;
using transport::kAccessRemoteWrite;
using transport::kAccessZeroBased;

constexpr uint32_t kKnownAccess =
    kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead |
    kAccessRemoteAtomic | kAccessMwBind | kAccessZeroBased | kAccessOnDemand |
    kAccessHugeTlb | kAccessFlushGlobal | kAccessFlushPersistent;

bool IsWholeAddressSpace(const void* address, uint64_t length,
                         uint32_t access) {
  return (access & kAccessOnDemand) != 0 && address == nullptr &&
         length == UINT64_MAX;
}

// 0 or EINVAL.
int CheckAccess(uint32_t access) {
  if ((access & ~kKnownAccess) != 0) return EINVAL;
  if ((access & (kAccessRemoteWrite | kAccessRemoteAtomic)) != 0 &&
      (access & kAccessLocalWrite) == 0) {
    return EINVAL;
  }
  return 0;
}

// Checks whether these parameters can be registered. Fills `region` except for
// key and domain. 0, EINVAL or EFAULT.
int Examine(void* address, uint64_t length, uint64_t iova, uint32_t access,
            Region* region) {
  if (const int error = CheckAccess(access)) return error;
  region->access = access;
  region->host = static_cast<uint8_t*>(address);
  region->length = length;
  region->iova = (access & kAccessZeroBased) != 0 ? 0 : iova;
  if (IsWholeAddressSpace(address, length, access)) {
    // There is no guarantee of huge pages in a whole address space
    // (ibv_reg_mr(3)).
    if ((access & (kAccessHugeTlb | kAccessFlushPersistent)) != 0 ||
        region->iova != 0) {
      return EINVAL;
    }
    region->length = kSignedMemory;
    return 0;
  }
  uint64_t end;
  if (length > kMaxRegion ||
      __builtin_add_overflow(reinterpret_cast<uint64_t>(address), length,
                             &end) ||
      __builtin_add_overflow(region->iova, length, &end)) {
    return EINVAL;
  }
  if (reinterpret_cast<uint64_t>(address) + length > kSignedMemory) {
    return EFAULT;
  }
  if ((access & kAccessOnDemand) != 0 &&
      (access & kAccessFlushPersistent) == 0) {
    return 0;
  }
  if (const int error =
          ProbeMemory(address, length, (access & kAccessLocalWrite) != 0)) {
    return error;
  }
  return (access & kAccessFlushPersistent) != 0
             ? CheckPersistent(address, length)
             : 0;
}

}  // namespace

MemoryRegion::MemoryRegion(ProtectionDomain& pd, Kind kind,
                           const Region& region, void* address, uint64_t length)
    : context_(pd.context),
      pd_(&pd),
      kind_(kind),
      region_(region),
      address_(address),
      length_(length) {
  region_.pd = pd.id;
  region_.key = context_.regions().Add(region_);
  if (!is_null()) ++pd.users;
}

int MemoryRegion::Withdraw() {
  context_.ExecuteArrived();
  if (const int error = context_.regions().Remove(region_.key)) {
    return error;
  }
  withdrawn_ = true;
  context_.WaitForLanes();
  Leave();
  return 0;
}

MemoryRegion::~MemoryRegion() {
  if (withdrawn_) return;
  context_.regions().RemoveWithWindows(region_.key);
  context_.WaitForLanes();
  Leave();
}

void MemoryRegion::Leave() {
  device_memory_.reset();
  if (!is_null()) --pd_->users;
}

int MemoryRegion::Register(ProtectionDomain& pd, void* address, uint64_t length,
                           uint64_t iova, uint32_t access,
                           std::unique_ptr<MemoryRegion>* out) {
  Region region;
  if (const int error = Examine(address, length, iova, access, &region)) {
    return error;
  }
  PrepareGuardedAccess();
  out->reset(new MemoryRegion(pd, Kind::kMemory, region, address, length));
  return 0;
}

std::unique_ptr<MemoryRegion> MemoryRegion::Null(ProtectionDomain& pd) {
  Region region;
  region.access = kAccessLocalWrite;
  region.host = reinterpret_cast<uint8_t*>(kNullMemory);
  region.length = kNullMemory;
  return std::unique_ptr<MemoryRegion>(
      new MemoryRegion(pd, Kind::kNull, region, nullptr, UINT64_MAX));
}

int MemoryRegion::RegisterDeviceMemory(ProtectionDomain& pd,
                                       std::shared_ptr<DeviceMemory> memory,
                                       uint64_t offset, uint64_t length,
                                       uint32_t access,
                                       std::unique_ptr<MemoryRegion>* out) {
  constexpr uint32_t kNotOfDeviceMemory =
      kAccessOnDemand | kAccessHugeTlb | kAccessFlushPersistent;
  if (const int error = CheckAccess(access)) return error;
  if ((access & kNotOfDeviceMemory) != 0 || (access & kAccessZeroBased) == 0 ||
      !memory->Contains(offset, length)) {
    return EINVAL;
  }
  Region region;
  region.access = access;
  region.host = memory->bytes() + offset;
  region.length = length;
  out->reset(new MemoryRegion(pd, Kind::kDevice, region, nullptr, length));
  (*out)->device_memory_ = std::move(memory);
  return 0;
}

int MemoryRegion::Reregister(const Change& change) {
  if (kind_ != Kind::kMemory) return EINVAL;
  void* const address = change.translation ? change.address : address_;
  const uint64_t length = change.translation ? change.length : length_;
  const uint64_t iova = change.translation
                            ? reinterpret_cast<uint64_t>(change.address)
                            : region_.iova;
  Region region;
  if (const int error =
          Examine(address, length, iova,
                  change.rights ? change.access : region_.access, &region)) {
    return error;
  }
  region.key = region_.key;
  region.pd = change.pd != nullptr ? change.pd->id : pd_->id;
  if (const int error = context_.regions().Replace(region)) return error;
  region_ = region;
  address_ = address;
  length_ = length;
  // The application may now free the old memory, or rely on the loss of the old
  // rights.
  context_.WaitForLanes();
  if (change.pd != nullptr) {
    ++change.pd->users;
    --pd_->users;
    pd_ = change.pd;
  }
  return 0;
}

}  // namespace rxe_user
