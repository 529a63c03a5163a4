#include "rxe_user/memory/persistence.h"

#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "rxe_user/memory/mappings.h"

namespace rxe_user {
namespace {

bool HasMedium(const Mapping& mapping) {
  if (!mapping.shared || mapping.inode == 0) return false;
  struct statfs system;
  // statfs fails if the file has been unlinked. Only files without a block
  // device have major number 0.
  if (statfs(mapping.path.c_str(), &system) != 0) {
    return mapping.device_major != 0;
  }
  switch (static_cast<uint32_t>(system.f_type)) {
    case TMPFS_MAGIC:
    case RAMFS_MAGIC:
    case HUGETLBFS_MAGIC:
      return false;
    default:
      return true;
  }
}

}  // namespace

int CheckPersistent(const void* address, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  return CheckMappings(begin, begin + bytes, HasMedium) == 0 ? 0 : EINVAL;
}

bool WriteToMedium(const void* address, size_t bytes) {
  static const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(address);
  const uintptr_t first = begin & ~(page - 1);
  if (bytes == 0) return true;
  return syscall(SYS_msync, first, begin + bytes - first, MS_SYNC) == 0;
}

}  // namespace rxe_user
