#include "rxe_user/memory/probe.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <memory>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace rxe_user {
namespace internal {

int ProbeMappings(uintptr_t begin, uintptr_t end, bool write) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> maps(
      std::fopen("/proc/self/maps", "re"), std::fclose);
  if (maps == nullptr) return 0;  // no /proc: uses of the region will tell
  // Lines ascend; `begin` advances over what is covered.
  char line[512];
  bool at_start = true;  // paths may be longer than `line`
  while (begin < end && std::fgets(line, sizeof(line), maps.get()) != nullptr) {
    uintptr_t low, high;
    char read, writable;
    const bool parse = at_start;
    at_start = std::strchr(line, '\n') != nullptr;
    if (!parse || std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %c%c", &low,
                              &high, &read, &writable) != 4) {
      continue;
    }
    if (high <= begin) continue;
    if (low > begin) return EFAULT;  // a hole
    if (read != 'r' || (write && writable != 'w')) return EFAULT;
    begin = high;
  }
  return begin < end ? EFAULT : 0;
}

}  // namespace internal

int ProbeMemory(const void* address, size_t bytes, bool write) {
  if (bytes == 0) return 0;
  static const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(address) & ~(page - 1);
  uintptr_t end;
  if (__builtin_add_overflow(reinterpret_cast<uintptr_t>(address),
                             bytes + (page - 1), &end) ||
      bytes + (page - 1) < bytes) {
    return EFAULT;
  }
  end &= ~(page - 1);
  if (end - begin <= kPopulateLimit) {
    int done;
    do {
      done = madvise(reinterpret_cast<void*>(begin), end - begin,
                     write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
    } while (done != 0 && (errno == EINTR || errno == EAGAIN));
    if (done == 0) return 0;
    if (errno == EFAULT || errno == EHWPOISON) return EFAULT;
    // ENOMEM: a hole, or truly out of memory. EINVAL: an old kernel, no
    // permission, or a device's memory. The list of mappings decides.
  }
  return internal::ProbeMappings(begin, end, write);
}

}  // namespace rxe_user
