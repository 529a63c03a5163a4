// Whether a range of this process's memory can be registered.
#ifndef RXE_USER_MEMORY_PROBE_H_
#define RXE_USER_MEMORY_PROBE_H_

#include <cstddef>
#include <cstdint>

namespace rxe_user {

// 0 if every byte of [address, address + bytes) is mapped and readable, and
// with `write` also writable; else EFAULT. Does not change the content. Faults
// in ranges of up to kPopulateLimit bytes, which saves time later; only looks
// up the mappings of larger ones.
int ProbeMemory(const void* address, size_t bytes, bool write);

// Faults in the pages of [address, address + bytes), for reading or also for
// writing: ibv_advise_mr(3). 0; EFAULT: some of it is not mapped, or not with
// these rights; ENOMEM.
int PopulateMemory(const void* address, size_t bytes, bool write);

inline constexpr size_t kPopulateLimit = size_t{256} << 20;  // bytes

namespace internal {
// The same by /proc/self/maps alone; for kernels before 5.14.
int ProbeMappings(uintptr_t begin, uintptr_t end, bool write);
}  // namespace internal

}  // namespace rxe_user

#endif  // RXE_USER_MEMORY_PROBE_H_
