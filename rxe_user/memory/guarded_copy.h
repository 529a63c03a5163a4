// Access to application memory that may have been unmapped
// (docs/design/memory.md): a fault returns false instead of ending the process.
//
// The accesses are a few assembly routines. Our signal handler turns a SIGSEGV
// or SIGBUS whose program counter is inside them into a failure return, and
// passes every other one to the handler that was installed before. Where our
// handler cannot run, because the application has installed another one since
// or the thread blocks the signals, process_vm_readv and process_vm_writev do
// the access. Each thread checks this about every 10 ms: a fault sooner after
// such a change goes to the application's handler.
//
// Thread: any. Nothing here allocates or locks.
#ifndef RXE_USER_MEMORY_GUARDED_COPY_H_
#define RXE_USER_MEMORY_GUARDED_COPY_H_

#include <cstddef>
#include <cstdint>

namespace rxe_user {

// Installs the handlers, once. A later call makes this thread check again that
// they are installed. Call it at set-up time (registering memory, creating a
// queue pair).
void PrepareGuardedAccess();

// While it lives, its thread checks for the handlers at most once, at the first
// access. For work of some microseconds. A thread has at most one.
class ScopedFaultGuard {
 public:
  ScopedFaultGuard();
  ~ScopedFaultGuard();
  ScopedFaultGuard(const ScopedFaultGuard&) = delete;
  ScopedFaultGuard& operator=(const ScopedFaultGuard&) = delete;
};

// Copies `bytes` from application memory `from`. False on a fault; any part may
// have been copied then. `more`: also prefetches the same number of bytes after
// `from`, for the next copy. They need not be mapped. If they are cached
// already, this only costs time.
bool GuardedCopyFrom(void* to, const void* from, size_t bytes,
                     bool more = false);
// The same, into memory that another processor reads next. If there are many
// bytes, they are not put into this processor's caches, and the lines that they
// overwrite are not fetched from the other's. Other processors may see these
// stores after later ones of this thread, unless OrderNonTemporalStores is
// called in between (rxe_user/base/non_temporal.h).
bool GuardedStreamFrom(void* to, const void* from, size_t bytes,
                       bool more = false);
// GuardedCopyFrom that continues `*icrc` over the bytes in `to`, as
// wire::IcrcFlow::Extend does, even if the application changes its memory
// meanwhile. In one pass where the processor can. On a fault `*icrc` is
// undefined.
bool GuardedCopyFromWithIcrc(void* to, const void* from, size_t bytes,
                             bool more, uint32_t* icrc);

// Copies `bytes` into application memory `to`. The last bytes (up to 8) are
// stored last, since an application may be polling on them: by one store if
// their number is 1, 2, 4 or at least 8, and ordered after all earlier stores
// of this thread, also of earlier calls. On aarch64, only aligned stores are
// seen as a whole: of unaligned last bytes, only the last four or the last one
// are stored last. `more` as above, for the bytes after `to`.
bool GuardedCopyTo(void* to, const void* from, size_t bytes, bool more = false);

// CPU atomics on an aligned word. `*original` gets the previous value. False
// on a fault.
bool GuardedCompareSwap(void* word, uint64_t compare, uint64_t swap,
                        uint64_t* original);
bool GuardedFetchAdd(void* word, uint64_t add, uint64_t* original);

namespace internal {
// The copies without our handler; for tests.
bool KernelCopyFrom(void* to, const void* from, size_t bytes);
bool KernelCopyTo(void* to, const void* from, size_t bytes);
}  // namespace internal

}  // namespace rxe_user

#endif  // RXE_USER_MEMORY_GUARDED_COPY_H_
