// Access to application memory that may have been unmapped
// (docs/architecture.md, "Memory"): a fault ends in a return value, not in a
// dead process.
//
// The accesses are a few assembly routines. A SIGSEGV or SIGBUS whose program
// counter lies inside them is turned into a failure return by our handler;
// every other one goes to the handler that was there before. Where our handler
// cannot run - the application has installed its own since, or the thread
// blocks the signals - process_vm_readv and process_vm_writev do the access.
// Whether it can is looked up every 10 ms or so in each thread: a fault sooner
// after such a change goes where every fault of the application goes.
//
// Thread: any. Nothing here allocates or locks.
#ifndef RXE_USER_MEMORY_GUARDED_COPY_H_
#define RXE_USER_MEMORY_GUARDED_COPY_H_

#include <cstddef>
#include <cstdint>

namespace rxe_user {

// Installs the handlers, once. Later calls look whether they are still there.
// Call at set-up time (registering memory, creating a queue pair).
void PrepareGuardedAccess();

// While one lives, its thread looks no more than once, at its first access,
// whether the handlers are there: for what takes some microseconds. One at a
// time in each thread.
class ScopedFaultGuard {
 public:
  ScopedFaultGuard();
  ~ScopedFaultGuard();
  ScopedFaultGuard(const ScopedFaultGuard&) = delete;
  ScopedFaultGuard& operator=(const ScopedFaultGuard&) = delete;
};

// Copies `bytes` from application memory `from`. False on a fault; then any
// part may have been copied. `more`: meanwhile, as much again right behind
// `from` is fetched for the next copy, or would be if memory were there; where
// it is in a cache anyway, that takes time for nothing.
bool GuardedCopyFrom(void* to, const void* from, size_t bytes,
                     bool more = false);
// The same, and continues `*icrc` as wire::IcrcFlow::Extend does over what is
// in `to` afterwards, whatever the application stores meanwhile: in one pass
// where the processor can. On a fault `*icrc` is arbitrary.
bool GuardedCopyFromWithIcrc(void* to, const void* from, size_t bytes,
                             bool more, uint32_t* icrc);

// Copies `bytes` into application memory `to`. The last bytes (up to 8) are
// stored last, by one store where their number is 1, 2, 4 or 8 or more, and
// ordered behind all others: an application may be polling on them. On aarch64,
// where only aligned stores are seen as a whole, it is the last four bytes, or
// the last one, that are stored last if `to` is aligned to no more. Behind all
// others means those of earlier calls of this thread, too. `more` as above, of
// what is behind `to`.
bool GuardedCopyTo(void* to, const void* from, size_t bytes, bool more = false);

// CPU atomics on an aligned word; the value before goes to `*original`. False
// on a fault.
bool GuardedCompareSwap(void* word, uint64_t compare, uint64_t swap,
                        uint64_t* original);
bool GuardedFetchAdd(void* word, uint64_t add, uint64_t* original);

namespace internal {
// What is used when our handler cannot run; for tests.
bool KernelCopyFrom(void* to, const void* from, size_t bytes);
bool KernelCopyTo(void* to, const void* from, size_t bytes);
}  // namespace internal

}  // namespace rxe_user

#endif  // RXE_USER_MEMORY_GUARDED_COPY_H_
