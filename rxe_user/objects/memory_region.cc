#include "rxe_user/objects/memory_region.h"

#include <cerrno>

#include "rxe_user/memory/guarded_copy.h"
#include "rxe_user/memory/probe.h"
#include "rxe_user/objects/limits.h"

namespace rxe_user {
namespace {

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
    kAccessRemoteAtomic | kAccessMwBind | kAccessZeroBased | kAccessHugeTlb;

int Check(const Region& region) {
  if ((region.access & kAccessOnDemand) != 0) return EOPNOTSUPP;
  if ((region.access & ~kKnownAccess) != 0) return EINVAL;
  if ((region.access & (kAccessRemoteWrite | kAccessRemoteAtomic)) != 0 &&
      (region.access & kAccessLocalWrite) == 0) {
    return EINVAL;
  }
  uint64_t end;
  if (region.length > kMaxRegion ||
      __builtin_add_overflow(reinterpret_cast<uint64_t>(region.host),
                             region.length, &end) ||
      __builtin_add_overflow(region.iova, region.length, &end)) {
    return EINVAL;
  }
  return ProbeMemory(region.host, region.length,
                     (region.access & kAccessLocalWrite) != 0);
}

}  // namespace

MemoryRegion::MemoryRegion(ProtectionDomain& pd, const Region& region)
    : pd_(&pd), region_(region) {
  region_.key = pd.context.regions().Add(region_);
  ++pd.users;
}

MemoryRegion::~MemoryRegion() {
  pd_->context.regions().Remove(region_.key);
  pd_->context.WaitForLanes();
  --pd_->users;
}

int MemoryRegion::Register(ProtectionDomain& pd, void* address, uint64_t length,
                           uint64_t iova, uint32_t access,
                           std::unique_ptr<MemoryRegion>* out) {
  Region region;
  region.pd = pd.id;
  region.access = access;
  region.host = static_cast<uint8_t*>(address);
  region.length = length;
  region.iova = (access & kAccessZeroBased) != 0 ? 0 : iova;
  if (const int error = Check(region); error != 0) return error;
  PrepareGuardedAccess();
  out->reset(new MemoryRegion(pd, region));
  return 0;
}

int MemoryRegion::Reregister(const Change& change) {
  Region region = region_;
  if (change.translation) {
    region.host = static_cast<uint8_t*>(change.address);
    region.length = change.length;
    region.iova = reinterpret_cast<uint64_t>(change.address);
  }
  if (change.rights) region.access = change.access;
  if ((region.access & kAccessZeroBased) != 0) region.iova = 0;
  if (const int error = Check(region); error != 0) return error;
  if (change.pd != nullptr) region.pd = change.pd->id;
  pd_->context.regions().Replace(region);
  region_ = region;
  // The old memory may be given back, the old rights be relied upon to be gone.
  pd_->context.WaitForLanes();
  if (change.pd != nullptr) {
    ++change.pd->users;
    --pd_->users;
    pd_ = change.pd;
  }
  return 0;
}

}  // namespace rxe_user
