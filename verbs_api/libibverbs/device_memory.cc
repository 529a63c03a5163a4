// Device memory: ibv_alloc_dm(3), ibv_reg_dm_mr(3), ibv_import_dm(3).
#include "rxe_user/objects/device_memory.h"

#include "verbs_api/libibverbs/abi.h"
#include "verbs_api/libibverbs/lookup.h"

namespace verbs_api {
namespace {

int MemcpyToDm(ibv_dm* ibv, uint64_t offset, const void* host, size_t length) {
  const NoCancellation no_cancellation;
  Dm* dm = Find(ibv);
  if (dm == nullptr) return Refuse(EINVAL);
  const int error = dm->memory->CopyIn(offset, host, length);
  return error == 0 ? 0 : Refuse(error);
}

int MemcpyFromDm(void* host, ibv_dm* ibv, uint64_t offset, size_t length) {
  const NoCancellation no_cancellation;
  Dm* dm = Find(ibv);
  if (dm == nullptr) return Refuse(EINVAL);
  const int error = dm->memory->CopyOut(host, offset, length);
  return error == 0 ? 0 : Refuse(error);
}

// `owner`: null in a child of fork() that uses its parent's context.
ibv_dm* ShowDm(Context* context, Context* owner,
               std::shared_ptr<rxe_user::DeviceMemory> memory) {
  auto dm = std::make_unique<Dm>();
  dm->context = &context->context;
  dm->memcpy_to_dm = MemcpyToDm;
  dm->memcpy_from_dm = MemcpyFromDm;
  dm->comp_mask = IBV_DM_MASK_HANDLE;
  dm->owner = owner;
  dm->memory = std::move(memory);
  dm->handle = Handles<Dm>().Add(dm.get());
  if (dm->handle == 0) return Fail(ENOMEM);
  if (owner != nullptr) Retain(owner);
  ++dm->memory->handles;
  return dm.release();
}

void HideDm(Dm* dm) {
  Handles<Dm>().Remove(dm->handle);
  --dm->memory->handles;
  Delete(dm);
}

}  // namespace

ibv_dm* AllocDm(ibv_context* ibv, ibv_alloc_dm_attr* attr) {
  return PointerCall([&]() -> ibv_dm* {
    // A child of fork() may allocate, too: device memory is plain memory, and
    // counting it takes no lock that the parent may have held. The context
    // itself is usable in the child only as memory.
    const bool inherited = MayBePointer(ibv) && IsInherited(ibv);
    Context* context =
        inherited ? static_cast<Context*>(verbs_get_ctx(ibv)) : Find(ibv);
    if (context == nullptr || attr == nullptr || attr->comp_mask != 0) {
      return Fail(EINVAL);
    }
    std::shared_ptr<rxe_user::DeviceMemory> memory;
    if (const int error = rxe_user::DeviceMemory::Allocate(
            *context->device, attr->length, attr->log_align_req, &memory)) {
      return Fail(error);
    }
    return ShowDm(context, inherited ? nullptr : context, std::move(memory));
  });
}

int FreeDm(ibv_dm* ibv) {
  return DestroyCall(ibv, [](Dm* dm) -> int {
    // Regions still use the memory.
    if (dm->memory.use_count() > dm->memory->handles) return EBUSY;
    dm->memory->gone = true;
    HideDm(dm);
    return 0;
  });
}

ibv_mr* RegDmMr(ibv_pd* ibv_pd, ibv_dm* ibv_dm, uint64_t offset, size_t length,
                unsigned int access) {
  return PointerCall([&]() -> ibv_mr* {
    Pd* pd = Find(ibv_pd);
    Dm* dm = Find(ibv_dm);
    if (pd == nullptr || dm == nullptr ||
        &dm->memory->context() != &pd->domain->context) {
      return Fail(EINVAL);
    }
    access &= ~static_cast<unsigned int>(IBV_ACCESS_OPTIONAL_RANGE);
    std::unique_ptr<rxe_user::MemoryRegion> region;
    if (const int error = rxe_user::MemoryRegion::RegisterDeviceMemory(
            *pd->domain, dm->memory, offset, length, access, &region)) {
      return Fail(error);
    }
    return ShowMr(pd, std::move(region));
  });
}

VERBS_EXPORT ibv_dm* ibv_import_dm(ibv_context* ibv, uint32_t handle) {
  return PointerCall([&]() -> ibv_dm* {
    Context* context = Find(ibv);
    if (context == nullptr) return Fail(EINVAL);
    Dm* dm = Handles<Dm>().Find(handle);
    if (dm == nullptr || dm->IsDestroyed() ||
        &dm->memory->context() != context->device.get()) {
      return Fail(ENOENT);
    }
    return ShowDm(context, context, dm->memory);
  });
}

VERBS_EXPORT void ibv_unimport_dm(ibv_dm* ibv) {
  const NoCancellation no_cancellation;
  if (Dm* dm = FindIncludingClosed(ibv)) HideDm(dm);
}

// Belongs to a version node that Debian's header does not have yet.
VERBS_EXPORT int ibv_dm_export_dmabuf_fd(ibv_dm* /*dm*/) {
  return FailMinusOne(EOPNOTSUPP);
}

}  // namespace verbs_api
