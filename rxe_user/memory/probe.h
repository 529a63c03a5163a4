// Whether a range of this process's memory can be registered.
#ifndef RXE_USER_MEMORY_PROBE_H_
#define RXE_USER_MEMORY_PROBE_H_

#include <cstddef>
#include <cstdint>

namespace rxe_user {

// 0 when every byte of [address, address + bytes) is mapped and may be read,
// and with `write` written as well; else EFAULT. Content is not touched. Up to
// kPopulateLimit bytes the pages are faulted in, which saves traffic that time;
// larger ranges are only looked up.
int ProbeMemory(const void* address, size_t bytes, bool write);

// Faults the pages of [address, address + bytes) in, for reading or for writing
// as well: ibv_advise_mr(3). 0; EFAULT: some of it is not mapped, or not so;
// ENOMEM.
int PopulateMemory(const void* address, size_t bytes, bool write);

inline constexpr size_t kPopulateLimit = size_t{256} << 20;  // bytes

namespace internal {
// The same by reading /proc/self/maps alone; for kernels before 5.14.
int ProbeMappings(uintptr_t begin, uintptr_t end, bool write);
}  // namespace internal

}  // namespace rxe_user

#endif  // RXE_USER_MEMORY_PROBE_H_
