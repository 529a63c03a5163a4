// Persistent memory: mapped files.
#ifndef RXE_USER_MEMORY_PERSISTENCE_H_
#define RXE_USER_MEMORY_PERSISTENCE_H_

#include <cstddef>

namespace rxe_user {

// 0 if all of [address, address + bytes) is in shared mappings of files on a
// persistent medium. EINVAL otherwise: memory without a file, a private
// mapping, a file of tmpfs, ramfs or hugetlbfs.
int CheckPersistent(const void* address, size_t bytes);

// Writes the range's pages to their medium and waits for the end: msync(2) with
// MS_SYNC. False if some of it is not mapped, or the medium fails. No
// cancellation point.
bool WriteToMedium(const void* address, size_t bytes);

}  // namespace rxe_user

#endif  // RXE_USER_MEMORY_PERSISTENCE_H_
