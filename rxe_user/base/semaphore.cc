#include "rxe_user/base/semaphore.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace rxe_user {
namespace {

void Futex(std::atomic<uint32_t>* word, int operation, uint32_t value) {
  static_assert(sizeof(*word) == sizeof(uint32_t));
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), operation, value,
            nullptr, nullptr, 0);
}

}  // namespace

void BinarySemaphore::Acquire() {
  uint32_t expected = kFree;
  if (state_.compare_exchange_strong(expected, kTaken,
                                     std::memory_order_acquire,
                                     std::memory_order_relaxed)) {
    return;
  }
  // Who gets it here cannot know whether others still sleep, so it is as if
  // they did: one needless wake at the end.
  while (state_.exchange(kTakenAndSleepers, std::memory_order_acquire) !=
         kFree) {
    Futex(&state_, FUTEX_WAIT_PRIVATE, kTakenAndSleepers);
  }
}

void BinarySemaphore::Release() {
  if (state_.exchange(kFree, std::memory_order_release) == kTakenAndSleepers) {
    Futex(&state_, FUTEX_WAKE_PRIVATE, 1);
  }
}

}  // namespace rxe_user
