// Protection domains and memory regions: ibv_alloc_pd(3), ibv_reg_mr(3),
// ibv_rereg_mr(3), ibv_alloc_null_mr(3), ibv_advise_mr(3), ibv_import_pd(3),
// ibv_import_mr(3).
#include <stdlib.h>
#include <unistd.h>

#include <memory>
#include <optional>

#include "rxe_user/memory/probe.h"
#include "rxe_user/objects/memory_region.h"
#include "verbs_api/libibverbs/abi.h"
#include "verbs_api/libibverbs/check.h"
#include "verbs_api/libibverbs/lookup.h"
#include "verbs_api/libibverbs/split_keys.h"
#include "verbs_api/symbols.h"

namespace verbs_api {
namespace {

ibv_pd* ShowPd(Context* context,
               std::shared_ptr<rxe_user::ProtectionDomain> domain) {
  auto pd = std::make_unique<Pd>();
  pd->context = &context->context;
  pd->owner = context;
  pd->domain = std::move(domain);
  pd->handle = Handles<Pd>().Add(pd.get());
  if (pd->handle == 0) return Fail(ENOMEM);
  Retain(context);
  return pd.release();
}

// Whether other ibv_pd handles share the domain.
bool HasOtherHandles(const Pd& pd) { return pd.domain.use_count() > 1; }

void HidePd(Pd* pd) {
  Handles<Pd>().Remove(pd->handle);
  if (pd->td != nullptr) --pd->td->users;
  Delete(pd);
}

void HideMr(Mr* mr) {
  Handles<Mr>().Remove(mr->handle);
  Delete(mr);
}

ibv_mr* Register(ibv_pd* ibv, void* address, size_t length, uint64_t iova,
                 unsigned int access) {
  return PointerCall(
      [&]() -> ibv_mr* {
        Pd* pd = Find(ibv);
        if (pd == nullptr) return Fail(EINVAL);
        CallArgument("addr", reinterpret_cast<uint64_t>(address));
        CallArgument("length", length);
        CallArgument("access", access);
        // A device may ignore optional access flags.
        access &= ~static_cast<unsigned int>(IBV_ACCESS_OPTIONAL_RANGE);
        std::unique_ptr<rxe_user::MemoryRegion> region;
        if (const int error = rxe_user::MemoryRegion::Register(
                *pd->domain, address, length, iova, access, &region)) {
          return Fail(error);
        }
        ibv_mr* const mr = ShowMr(pd, std::move(region));
        if (mr != nullptr) CallArgument("rkey", mr->rkey);
        return mr;
      },
      "ibv_reg_mr");
}

// Checks one SGE of ibv_advise_mr. Returns 0 or an errno value.
int CheckAdvice(Pd* pd, const rxe_user::Region& region, bool write,
                const ibv_sge& sge) {
  if (region.pd != pd->domain->id) return EPERM;
  if ((region.access & IBV_ACCESS_ON_DEMAND) == 0) return EINVAL;
  if (write && (region.access & IBV_ACCESS_LOCAL_WRITE) == 0) return EFAULT;
  return region.Covers(sge.addr, sge.length) ? 0 : EFAULT;
}

}  // namespace

ibv_mr* ShowMr(Pd* pd, std::shared_ptr<rxe_user::MemoryRegion> region) {
  auto mr = std::make_unique<Mr>();
  mr->context = &pd->owner->context;
  mr->pd = pd;
  mr->addr = region->address();
  mr->length = region->length();
  mr->lkey = region->key();
  mr->rkey = region->is_null() ? 0 : RkeyOf(region->key());
  mr->owner = pd->owner;
  mr->region = std::move(region);
  mr->handle = Handles<Mr>().Add(mr.get());
  if (mr->handle == 0) return Fail(ENOMEM);
  Retain(mr->owner);
  return mr.release();
}

ibv_mr* AllocNullMr(ibv_pd* ibv) {
  return PointerCall([&]() -> ibv_mr* {
    Pd* pd = Find(ibv);
    if (pd == nullptr) return Fail(EINVAL);
    return ShowMr(pd, rxe_user::MemoryRegion::Null(*pd->domain));
  });
}

// Prefetching faults the pages in. It is done at once, whether or not the
// caller asks to wait for it (IBV_ADVISE_MR_FLAG_FLUSH).
int AdviseMr(ibv_pd* ibv, ibv_advise_mr_advice advice, uint32_t flags,
             ibv_sge* list, uint32_t count) {
  return ErrnoCall([&]() -> int {
    Pd* pd = Find(ibv);
    if (pd == nullptr || (flags & ~IBV_ADVISE_MR_FLAG_FLUSH) != 0) {
      return EINVAL;
    }
    const int wanted = Raw(advice);
    if (wanted != IBV_ADVISE_MR_ADVICE_PREFETCH &&
        wanted != IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE &&
        wanted != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) {
      return ENOTSUP;
    }
    if (list == nullptr || count == 0) return EINVAL;
    const bool write = wanted == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
    rxe_user::RegionTable& regions = pd->domain->context.regions();
    for (uint32_t i = 0; i < count; ++i) {
      rxe_user::Region region;
      if (!regions.Find(list[i].lkey, &region)) return EFAULT;
      if (const int error = CheckAdvice(pd, region, write, list[i])) {
        return error;
      }
      if (wanted == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) continue;
      const uint64_t address = reinterpret_cast<uint64_t>(region.host) +
                               (list[i].addr - region.iova);
      if (const int error = rxe_user::PopulateMemory(
              reinterpret_cast<const void*>(address), list[i].length, write)) {
        return error;
      }
    }
    return 0;
  });
}

VERBS_EXPORT ibv_pd* ibv_alloc_pd(ibv_context* ibv) {
  return PointerCall([&]() -> ibv_pd* {
    Context* context = Find(ibv);
    if (context == nullptr) return Fail(EINVAL);
    return ShowPd(context, std::make_shared<rxe_user::ProtectionDomain>(
                               *context->device));
  });
}

namespace {

// The allocator with which a parent domain was created.
class PdAllocator final : public rxe_user::QueueAllocator {
 public:
  explicit PdAllocator(const ibv_parent_domain_init_attr& attr)
      : alloc_(attr.alloc),
        free_(attr.free),
        context_((attr.comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT) != 0
                     ? attr.pd_context
                     : nullptr) {}
  // Must be called before the first allocation.
  void set_pd(ibv_pd* pd) { pd_ = pd; }

  std::optional<void*> Allocate(size_t size, size_t alignment,
                                rxe_user::QueueKind kind) override {
    void* const memory =
        alloc_(pd_, context_, size, alignment, static_cast<uint64_t>(kind));
    if (memory == IBV_ALLOCATOR_USE_DEFAULT) return std::nullopt;
    return memory;
  }
  void Free(void* memory, rxe_user::QueueKind kind) override {
    free_(pd_, context_, memory, static_cast<uint64_t>(kind));
  }

 private:
  ibv_pd* pd_ = nullptr;
  decltype(ibv_parent_domain_init_attr::alloc) const alloc_;
  decltype(ibv_parent_domain_init_attr::free) const free_;
  void* const context_;
};

}  // namespace

ibv_pd* AllocParentDomain(ibv_context* ibv, ibv_parent_domain_init_attr* attr) {
  return PointerCall([&]() -> ibv_pd* {
    Context* context = Find(ibv);
    // kAllowUnprotected: ibv_alloc_buf may return memory that a confidential
    // guest shares with its host. Our data never leaves the guest's processor,
    // so any memory will do.
    constexpr uint32_t kAllowUnprotected = 1 << 2;
    constexpr uint32_t kKnown = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
                                IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT |
                                kAllowUnprotected;
    if (context == nullptr || attr == nullptr ||
        (attr->comp_mask & ~kKnown) != 0) {
      return Fail(EINVAL);
    }
    Pd* of = Find(attr->pd);
    Td* td = Find(attr->td);
    if (of == nullptr || of->context != ibv ||
        (attr->td != nullptr && (td == nullptr || td->context != ibv))) {
      return Fail(EINVAL);
    }
    const bool allocates =
        (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) != 0;
    if (allocates && (attr->alloc == nullptr || attr->free == nullptr)) {
      return Fail(EINVAL);
    }
    auto domain = std::make_shared<rxe_user::ProtectionDomain>(*of->domain);
    auto allocator = allocates ? std::make_unique<PdAllocator>(*attr) : nullptr;
    PdAllocator* const allocator_of_pd = allocator.get();
    domain->allocator = std::move(allocator);
    ibv_pd* pd = ShowPd(context, std::move(domain));
    if (pd == nullptr) return nullptr;
    if (allocates) allocator_of_pd->set_pd(pd);
    static_cast<Pd*>(pd)->td = td;
    if (td != nullptr) ++td->users;
    return pd;
  });
}

VERBS_EXPORT int ibv_dealloc_pd(ibv_pd* ibv) {
  return DestroyCall(ibv, [](Pd* pd) -> int {
    if (pd->domain->users > 0) return EBUSY;
    pd->domain->gone = true;
    HidePd(pd);
    return 0;
  });
}

VERBS_EXPORT ibv_pd* ibv_import_pd(ibv_context* ibv, uint32_t handle) {
  return PointerCall([&]() -> ibv_pd* {
    Context* context = Find(ibv);
    if (context == nullptr) return Fail(EINVAL);
    Pd* pd = Handles<Pd>().Find(handle);
    if (pd == nullptr || pd->IsDestroyed() ||
        &pd->domain->context != context->device.get()) {
      return Fail(ENOENT);
    }
    return ShowPd(context, pd->domain);
  });
}

VERBS_EXPORT void ibv_unimport_pd(ibv_pd* ibv) {
  const NoCancellation no_cancellation;
  Pd* pd = FindIncludingClosed(ibv);
  if (pd == nullptr) return;
  // The last handle cannot be destroyed while the domain is in use.
  if (pd->domain->users > 0 && !HasOtherHandles(*pd)) {
    errno = EBUSY;
    return;
  }
  HidePd(pd);
}

VERBS_EXPORT ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, size_t length,
                                int access) {
  return Register(pd, address, length, reinterpret_cast<uint64_t>(address),
                  static_cast<unsigned int>(access));
}

VERBS_EXPORT ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* address, size_t length,
                                     uint64_t iova, int access) {
  return Register(pd, address, length, iova, static_cast<unsigned int>(access));
}

VERBS_EXPORT ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, size_t length,
                                      uint64_t iova, unsigned int access) {
  return Register(pd, address, length, iova, access);
}

VERBS_EXPORT ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* /*pd*/, uint64_t /*offset*/,
                                       size_t /*length*/, uint64_t /*iova*/,
                                       int /*fd*/, int /*access*/) {
  return Fail(EOPNOTSUPP);
}

VERBS_EXPORT int ibv_rereg_mr(ibv_mr* ibv, int flags, ibv_pd* ibv_pd,
                              void* address, size_t length, int access) {
  const NoCancellation no_cancellation;
  const auto input_error = [](int error) {
    errno = error;
    return static_cast<int>(IBV_REREG_MR_ERR_INPUT);
  };
  return NoThrow(
      [&]() -> int {
        Mr* mr = Find(ibv);
        if (mr == nullptr || flags == 0 ||
            (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) != 0 ||
            (access != 0 && (flags & IBV_REREG_MR_CHANGE_ACCESS) == 0)) {
          return input_error(EINVAL);
        }
        rxe_user::MemoryRegion::Change change;
        Pd* pd = nullptr;
        if ((flags & IBV_REREG_MR_CHANGE_PD) != 0) {
          pd = Find(ibv_pd);
          if (pd == nullptr || &pd->domain->context != &mr->region->context()) {
            return input_error(EINVAL);
          }
          change.pd = pd->domain.get();
        }
        if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0) {
          if (address == nullptr || length == 0) return input_error(EINVAL);
          change.translation = true;
          change.address = address;
          change.length = length;
        }
        if ((flags & IBV_REREG_MR_CHANGE_ACCESS) != 0) {
          change.rights = true;
          change.access = static_cast<uint32_t>(access) &
                          ~static_cast<uint32_t>(IBV_ACCESS_OPTIONAL_RANGE);
        }
        if (const int error = mr->region->Reregister(change)) {
          // Whatever the error, the region is unchanged.
          return input_error(error);
        }
        if (pd != nullptr) mr->pd = pd;
        mr->addr = mr->region->address();
        mr->length = mr->region->length();
        return 0;
      },
      input_error);
}

VERBS_EXPORT int ibv_dereg_mr(ibv_mr* ibv) {
  return DestroyCall(ibv, [](Mr* mr) -> int {
    if (const int error = mr->region->Withdraw()) return error;
    if (lint::Checker::Current() != nullptr) CheckDeregistered(*mr);
    HideMr(mr);
    return 0;
  });
}

VERBS_EXPORT ibv_mr* ibv_import_mr(ibv_pd* ibv, uint32_t handle) {
  return PointerCall([&]() -> ibv_mr* {
    Pd* pd = Find(ibv);
    if (pd == nullptr) return Fail(EINVAL);
    Mr* mr = Handles<Mr>().Find(handle);
    if (mr == nullptr || mr->IsDestroyed() ||
        &mr->region->domain() != pd->domain.get()) {
      return Fail(ENOENT);
    }
    ibv_mr* const imported = ShowMr(pd, mr->region);
    // The region may belong to another process, where its address has another
    // meaning.
    if (imported != nullptr) imported->addr = nullptr;
    return imported;
  });
}

VERBS_EXPORT void ibv_unimport_mr(ibv_mr* ibv) {
  const NoCancellation no_cancellation;
  if (Mr* mr = FindIncludingClosed(ibv)) HideMr(mr);
}

// --- Version nodes 1.15 to 1.18, which Debian's header does not have yet
// (manual pages ibv_reg_mr_ex(3), ibv_alloc_buf(3)).

namespace {

enum : uint64_t {
  kRegMrMaskIova = 1 << 0,
  kRegMrMaskAddr = 1 << 1,
  kRegMrMaskFd = 1 << 2,
  kRegMrMaskFdOffset = 1 << 3,
  kRegMrMaskBuf = 1 << 5,
};

// struct ibv_buf.
struct Buffer {
  ibv_pd* pd;
  void* address;
  size_t size;
};

// Only the members that comp_mask selects are valid.
struct MrInitAttr {
  size_t length;
  int access;
  uint64_t comp_mask;
  uint64_t iova;
  void* addr;
  int fd;
  uint64_t fd_offset;
  void* dmah;
  Buffer* buf;
};

// Whether [address, address + length) is inside `buffer` and may be registered
// with `pd`.
bool IsPart(const Buffer* buffer, ibv_pd* pd, const void* address,
            size_t length) {
  if (!MayBePointer(buffer) || buffer->pd != pd) return false;
  const auto begin = reinterpret_cast<uintptr_t>(buffer->address);
  const auto from = reinterpret_cast<uintptr_t>(address);
  return from >= begin && from - begin <= buffer->size &&
         length <= buffer->size - (from - begin);
}

}  // namespace

NEWER_EXPORT(ibv_mr*, ibv_reg_mr_ex, ibv_pd* pd, const MrInitAttr* attr) {
  if (attr == nullptr) return Fail(EINVAL);
  const uint64_t mask = attr->comp_mask;
  // A buffer has its own descriptor, if any.
  if ((mask & kRegMrMaskBuf) != 0 &&
      (mask & (kRegMrMaskFd | kRegMrMaskFdOffset)) != 0) {
    return Fail(EINVAL);
  }
  if ((mask & ~(kRegMrMaskIova | kRegMrMaskAddr | kRegMrMaskBuf)) != 0) {
    return Fail(EOPNOTSUPP);
  }
  if ((mask & kRegMrMaskAddr) == 0 ||
      ((mask & kRegMrMaskBuf) != 0 &&
       !IsPart(attr->buf, pd, attr->addr, attr->length))) {
    return Fail(EINVAL);
  }
  const uint64_t iova = (mask & kRegMrMaskIova) != 0
                            ? attr->iova
                            : reinterpret_cast<uint64_t>(attr->addr);
  return Register(pd, attr->addr, attr->length, iova,
                  static_cast<unsigned int>(attr->access));
}

// Hints for PCI Express, on which our device is not.
NEWER_EXPORT(void*, ibv_alloc_dmah, ibv_context* /*context*/, void* /*attr*/) {
  return Fail(EOPNOTSUPP);
}
NEWER_EXPORT(int, ibv_dealloc_dmah, void* /*dmah*/) { return EOPNOTSUPP; }

NEWER_EXPORT(void*, ibv_alloc_buf, ibv_pd* pd, size_t size, Buffer** buffer) {
  return PointerCall([&]() -> void* {
    if (Find(pd) == nullptr || size == 0 || buffer == nullptr) {
      return Fail(EINVAL);
    }
    auto made = std::make_unique<Buffer>(Buffer{pd, nullptr, size});
    if (const int error =
            posix_memalign(&made->address, sysconf(_SC_PAGESIZE), size)) {
      return Fail(error);
    }
    *buffer = made.release();
    return (*buffer)->address;
  });
}

// None of our memory is a dma-buf.
NEWER_EXPORT(int, ibv_export_buf_dmabuf_fd, Buffer* buffer) {
  errno = MayBePointer(buffer) ? ENODATA : EINVAL;
  return -1;
}

NEWER_EXPORT(void, ibv_free_buf, Buffer* buffer) {
  const NoCancellation no_cancellation;
  if (!MayBePointer(buffer)) return;
  free(buffer->address);
  delete buffer;
}

NEWER_EXPORT(ibv_mr*, ibv_reg_buf_mr, ibv_pd* pd, Buffer* buffer, void* address,
             size_t length, int access) {
  if (!IsPart(buffer, pd, address, length)) return Fail(EINVAL);
  return Register(pd, address, length, reinterpret_cast<uint64_t>(address),
                  static_cast<unsigned int>(access));
}

}  // namespace verbs_api
