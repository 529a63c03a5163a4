// Memory whose content outlasts the power: mapped files.
#ifndef RXE_USER_MEMORY_PERSISTENCE_H_
#define RXE_USER_MEMORY_PERSISTENCE_H_

#include <cstddef>

namespace rxe_user {

// 0 when all of [address, address + bytes) belongs to shared mappings of files
// that have a medium; EINVAL when some of it does not: memory without a file,
// a private mapping, a file of tmpfs, ramfs or hugetlbfs.
int CheckPersistent(const void* address, size_t bytes);

// Writes what the range's pages hold to their medium, and waits until it is
// there: msync(2) with MS_SYNC. False when some of it is not mapped, or the
// medium fails. No cancellation point.
bool WriteToMedium(const void* address, size_t bytes);

}  // namespace rxe_user

#endif  // RXE_USER_MEMORY_PERSISTENCE_H_
