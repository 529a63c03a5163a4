#include "rxe_user/memory/guarded_copy.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <type_traits>

#include "wire/icrc.h"

#if defined(__x86_64__)
#include "rxe_user/memory/guarded_x86_64.h"
#define RXE_USER_GUARDED_ASM 1
#elif defined(__aarch64__)
#include "rxe_user/memory/guarded_aarch64.h"
#define RXE_USER_GUARDED_ASM 1
#else
#define RXE_USER_GUARDED_ASM 0
#endif

namespace rxe_user {
namespace {

#if RXE_USER_GUARDED_ASM

constexpr int kSignals[] = {SIGSEGV, SIGBUS};
struct sigaction previous[2];

// Handles a signal that is not ours as if our handler were not installed.
void Chain(int index, int signal, siginfo_t* info, void* context) {
  const struct sigaction old = previous[index];
  // SA_RESETHAND: the handler expects to be called once. It returns, and the
  // repeated fault ends the process.
  if ((old.sa_flags & SA_RESETHAND) != 0) {
    previous[index].sa_flags = 0;
    previous[index].sa_handler = SIG_DFL;
  }
  if ((old.sa_flags & SA_SIGINFO) != 0) {
    old.sa_sigaction(signal, info, context);
    return;
  }
  const bool sent = info->si_code <= 0;  // by kill() and the like, not a fault
  if (old.sa_handler == SIG_IGN && sent) return;
  if (old.sa_handler != SIG_IGN && old.sa_handler != SIG_DFL) {
    old.sa_handler(signal);
    return;
  }
  // The default action: the fault repeats on return and ends the process.
  struct sigaction fallback = {};
  fallback.sa_handler = SIG_DFL;
  sigaction(signal, &fallback, nullptr);
  if (sent) raise(signal);
}

void OnSignal(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  ucontext_t* user = static_cast<ucontext_t*>(context);
  auto& pc = assembly::ProgramCounter(*user);
  using Address = std::remove_reference_t<decltype(pc)>;
  // Not ours: signals sent by kill() and the like, and reports of broken memory
  // that was not accessed (BUS_MCEERR_AO).
  const bool fault = info->si_code > 0 &&
                     !(signal == SIGBUS && info->si_code == BUS_MCEERR_AO);
  if (fault && pc >= reinterpret_cast<Address>(rxe_user_guarded_begin) &&
      pc < reinterpret_cast<Address>(rxe_user_guarded_end)) {
    pc = reinterpret_cast<Address>(rxe_user_guarded_fault);
  } else {
    Chain(signal == SIGSEGV ? 0 : 1, signal, info, context);
  }
  errno = saved_errno;
}

void Install() {
  for (int i = 0; i < 2; ++i) {
    if (sigaction(kSignals[i], nullptr, &previous[i]) != 0) continue;
    struct sigaction ours = {};
    ours.sa_sigaction = OnSignal;
    ours.sa_mask = previous[i].sa_mask;
    // The earlier handler keeps the stack that it asked for.
    ours.sa_flags = SA_SIGINFO | (previous[i].sa_flags &
                                  (SA_ONSTACK | SA_NODEFER | SA_RESTART));
    sigaction(kSignals[i], &ours, nullptr);
  }
}

// Whether a fault in this thread would reach OnSignal.
bool HandlerRuns() {
  sigset_t blocked;
  if (pthread_sigmask(SIG_BLOCK, nullptr, &blocked) != 0) return false;
  for (int signal : kSignals) {
    struct sigaction current;
    if (sigismember(&blocked, signal) != 0 ||
        sigaction(signal, nullptr, &current) != 0 ||
        (current.sa_flags & SA_SIGINFO) == 0 ||
        current.sa_sigaction != OnSignal) {
      return false;
    }
  }
  return true;
}

constexpr int64_t kRecheckNs = 10'000'000;
struct ThreadState {
  int64_t checked_at = 0;  // CLOCK_MONOTONIC_COARSE, ns; 0 = never
  bool handler_runs = false;
  bool in_scope = false;
  bool checked_in_scope = false;
};
thread_local ThreadState thread_state;

// Cached for kRecheckNs, since it takes three system calls.
bool MayFault() {
  ThreadState& state = thread_state;
  if (state.checked_in_scope) return state.handler_runs;
  state.checked_in_scope = state.in_scope;
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  const int64_t ns = now.tv_sec * 1'000'000'000 + now.tv_nsec;
  if (state.checked_at == 0 || ns - state.checked_at > kRecheckNs) {
    state.handler_runs = HandlerRuns();
    state.checked_at = ns;
  }
  return state.handler_runs;
}

// The address to prefetch while `bytes` at `at` are copied: right after them.
const void* Ahead(const void* at, size_t bytes, bool more) {
  return more ? static_cast<const char*>(at) + bytes : nullptr;
}

#endif  // RXE_USER_GUARDED_ASM

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

// Makes the word's page writable as a store would, without storing.
bool WordIsWritable(void* word) {
  uint64_t value;
  if (!internal::KernelCopyFrom(&value, word, sizeof(value))) return false;
  static const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto page_of = [](void* address) {
    return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(address) &
                                   ~(page - 1));
  };
  if (madvise(page_of(word), page, MADV_POPULATE_WRITE) == 0) return true;
  if (errno != EINVAL) return false;
  // No write permission, or a kernel before 5.14, which refuses this for our
  // own stack as well.
  return madvise(page_of(&value), page, MADV_POPULATE_WRITE) != 0;
}

// System call filters may forbid process_vm_*: then accesses are not guarded.
bool Forbidden() { return errno == ENOSYS || errno == EPERM; }

using Pieces = std::array<iovec, 2>;

bool WriteByKernel(const Pieces& from, const Pieces& to, size_t bytes) {
  const ssize_t done = process_vm_writev(getpid(), from.data(), from.size(),
                                         to.data(), to.size(), 0);
  if (done < 0 && Forbidden()) {
    for (size_t i = 0; i < from.size(); ++i) {
      if (from[i].iov_len == 0) continue;
      std::atomic_thread_fence(std::memory_order_release);
      std::memcpy(to[i].iov_base, from[i].iov_base, to[i].iov_len);
    }
    return true;
  }
  return done == static_cast<ssize_t>(bytes);
}

}  // namespace

namespace internal {

bool KernelCopyFrom(void* to, const void* from, size_t bytes) {
  iovec local = {to, bytes};
  iovec remote = {const_cast<void*>(from), bytes};
  const ssize_t done = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
  if (done < 0 && Forbidden()) {
    std::memcpy(to, from, bytes);
    return true;
  }
  return done == static_cast<ssize_t>(bytes);
}

bool KernelCopyTo(void* to, const void* from, size_t bytes) {
  // The last word is written separately, so that it is stored last.
  const size_t last = bytes < 8 ? bytes : 8;
  const size_t first = bytes - last;
  auto* in = static_cast<char*>(const_cast<void*>(from));
  auto* out = static_cast<char*>(to);
#if defined(__x86_64__)
  return WriteByKernel({{{in, first}, {in + first, last}}},
                       {{{out, first}, {out + first, last}}}, bytes);
#else
  // Within one call the kernel may store in any order.
  if (first > 0 &&
      !WriteByKernel({{{in, first}, {}}}, {{{out, first}, {}}}, first))
    return false;
  std::atomic_thread_fence(std::memory_order_release);
  return WriteByKernel({{{in + first, last}, {}}}, {{{out + first, last}, {}}},
                       last);
#endif
}

}  // namespace internal

void PrepareGuardedAccess() {
#if RXE_USER_GUARDED_ASM
  static std::once_flag once;
  std::call_once(once, Install);
  thread_state.checked_at = 0;
#endif
}

ScopedFaultGuard::ScopedFaultGuard() {
#if RXE_USER_GUARDED_ASM
  thread_state.in_scope = true;
#endif
}

ScopedFaultGuard::~ScopedFaultGuard() {
#if RXE_USER_GUARDED_ASM
  thread_state.in_scope = false;
  thread_state.checked_in_scope = false;
#endif
}

bool GuardedCopyFrom(void* to, const void* from, size_t bytes,
                     [[maybe_unused]] bool more) {
  if (bytes == 0) return true;
#if RXE_USER_GUARDED_ASM
  if (MayFault())
    return assembly::Copy(to, from, bytes, Ahead(from, bytes, more),
                          assembly::kAnyOrder);
#endif
  return internal::KernelCopyFrom(to, from, bytes);
}

bool GuardedStreamFrom(void* to, const void* from, size_t bytes,
                       [[maybe_unused]] bool more) {
  if (bytes == 0) return true;
#if RXE_USER_GUARDED_ASM
  if (MayFault())
    return assembly::Stream(to, from, bytes, Ahead(from, bytes, more));
#endif
  return internal::KernelCopyFrom(to, from, bytes);
}

bool GuardedCopyFromWithIcrc(void* to, const void* from, size_t bytes,
                             [[maybe_unused]] bool more, uint32_t* icrc) {
  auto* out = static_cast<uint8_t*>(to);
  auto* in = static_cast<const uint8_t*>(from);
#if RXE_USER_GUARDED_ASM
  const size_t folded = assembly::Foldable(bytes);
  if (folded > 0 && MayFault()) {
    uint32_t crc = ~*icrc;
    if (!assembly::Fold(out, in, folded, &crc, Ahead(in, bytes, more))) {
      return false;
    }
    *icrc = ~crc;
    out += folded;
    in += folded;
    bytes -= folded;
  }
#endif
  if (bytes == 0) return true;
  if (!GuardedCopyFrom(out, in, bytes)) return false;
  *icrc = wire::IcrcFlow::Extend(*icrc, {out, bytes});
  return true;
}

bool GuardedCopyTo(void* to, const void* from, size_t bytes,
                   [[maybe_unused]] bool more) {
  if (bytes == 0) return true;
#if RXE_USER_GUARDED_ASM
  if (MayFault())
    return assembly::Copy(to, from, bytes, Ahead(to, bytes, more),
                          assembly::kLastWordLast);
#endif
  return internal::KernelCopyTo(to, from, bytes);
}

bool GuardedCompareSwap(void* word, uint64_t compare, uint64_t swap,
                        uint64_t* original) {
#if RXE_USER_GUARDED_ASM
  if (MayFault()) {
    return rxe_user_guarded_compare_swap(word, compare, swap, original) == 0;
  }
#endif
  if (!WordIsWritable(word)) return false;
  std::atomic_ref<uint64_t> reference(*static_cast<uint64_t*>(word));
  reference.compare_exchange_strong(compare, swap);
  *original = compare;
  return true;
}

bool GuardedFetchAdd(void* word, uint64_t add, uint64_t* original) {
#if RXE_USER_GUARDED_ASM
  if (MayFault()) return rxe_user_guarded_fetch_add(word, add, original) == 0;
#endif
  if (!WordIsWritable(word)) return false;
  std::atomic_ref<uint64_t> reference(*static_cast<uint64_t*>(word));
  *original = reference.fetch_add(add);
  return true;
}

}  // namespace rxe_user
