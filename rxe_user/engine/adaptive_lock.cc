#include "rxe_user/engine/adaptive_lock.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace rxe_user {
namespace {

// Longer than most holds, which may include a system call that wakes a thread
// on another core. About the cost of sleeping and being woken.
constexpr int64_t kSpinNs = 20'000;
constexpr int kPausesPerProbe = 8;

int64_t NowNs() {
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void Futex(std::atomic<uint32_t>* word, int operation, uint32_t value) {
  static_assert(sizeof(*word) == sizeof(uint32_t));
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), operation, value,
            nullptr, nullptr, 0);
}

}  // namespace

void AdaptiveLock::TakeSlowly() {
  waiting_.fetch_add(1, std::memory_order_relaxed);
  bool locked = false;
  const int64_t limit = NowNs() + kSpinNs;
  do {
    for (int i = 0; i < kPausesPerProbe; ++i) Pause();
    locked = Take();
  } while (!locked && NowNs() < limit);
  if (!locked) {
    // The new holder cannot know whether other threads still sleep, so it marks
    // the lock kHeldAndSleepers. The price is at most one needless wake.
    while (state_.exchange(kHeldAndSleepers, std::memory_order_acquire) !=
           kFree) {
      Futex(&state_, FUTEX_WAIT_PRIVATE, kHeldAndSleepers);
    }
  }
  waiting_.fetch_sub(1, std::memory_order_relaxed);
}

bool AdaptiveLock::TryLockFor(int64_t limit) {
  const int64_t end = NowNs() + limit;
  while (!TryLock()) {
    if (NowNs() > end) return false;
    const timespec nap = {0, 20'000};
    ::nanosleep(&nap, nullptr);
  }
  return true;
}

void AdaptiveLock::WakeOne() { Futex(&state_, FUTEX_WAKE_PRIVATE, 1); }

}  // namespace rxe_user
