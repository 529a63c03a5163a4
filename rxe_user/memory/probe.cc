#include "rxe_user/memory/probe.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "rxe_user/memory/mappings.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace rxe_user {
namespace internal {

int ProbeMappings(uintptr_t begin, uintptr_t end, bool write) {
  return CheckMappings(begin, end, [write](const Mapping& mapping) {
    return mapping.readable && (mapping.writable || !write);
  });
}

}  // namespace internal

namespace {

struct Pages {
  uintptr_t begin;
  uintptr_t end;
};

// The pages of `bytes` at `address`. EFAULT: the range wraps around.
int ToPages(const void* address, size_t bytes, Pages* out) {
  static const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  out->begin = reinterpret_cast<uintptr_t>(address) & ~(page - 1);
  if (__builtin_add_overflow(reinterpret_cast<uintptr_t>(address),
                             bytes + (page - 1), &out->end) ||
      bytes + (page - 1) < bytes) {
    return EFAULT;
  }
  out->end &= ~(page - 1);
  return 0;
}

// 0 or errno of madvise(2).
int FaultIn(const Pages& pages, bool write) {
  int done;
  do {
    done =
        madvise(reinterpret_cast<void*>(pages.begin), pages.end - pages.begin,
                write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
  } while (done != 0 && (errno == EINTR || errno == EAGAIN));
  return done == 0 ? 0 : errno;
}

}  // namespace

int ProbeMemory(const void* address, size_t bytes, bool write) {
  if (bytes == 0) return 0;
  Pages pages;
  if (const int error = ToPages(address, bytes, &pages)) return error;
  if (pages.end - pages.begin <= kPopulateLimit) {
    const int error = FaultIn(pages, write);
    if (error == 0) return 0;
    if (error == EFAULT || error == EHWPOISON) return EFAULT;
    // ENOMEM: a hole, or no memory. EINVAL: an old kernel, missing permission,
    // or device memory. The list of mappings decides.
  }
  return internal::ProbeMappings(pages.begin, pages.end, write);
}

int PopulateMemory(const void* address, size_t bytes, bool write) {
  if (bytes == 0) return 0;
  Pages pages;
  if (const int error = ToPages(address, bytes, &pages)) return error;
  const int error = FaultIn(pages, write);
  if (error == 0) return 0;
  if (error == EFAULT || error == EHWPOISON ||
      internal::ProbeMappings(pages.begin, pages.end, write) != 0) {
    return EFAULT;
  }
  return error == ENOMEM ? ENOMEM : 0;
}

}  // namespace rxe_user
