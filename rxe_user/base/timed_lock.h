// Locks a mutex within a limited time. For the end of a program, which a signal
// handler may have begun in a thread that holds the lock.
#ifndef RXE_USER_BASE_TIMED_LOCK_H_
#define RXE_USER_BASE_TIMED_LOCK_H_

#include <pthread.h>
#include <time.h>

#include <chrono>
#include <mutex>

namespace rxe_user {

// Owns the lock, unless it did not become free within `patience` (rounded up to
// whole seconds).
inline std::unique_lock<std::mutex> LockWithin(
    std::mutex& mutex, std::chrono::milliseconds patience) {
  timespec until;
  ::clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec +=
      std::chrono::duration_cast<std::chrono::seconds>(patience).count() + 1;
  if (::pthread_mutex_timedlock(mutex.native_handle(), &until) != 0) return {};
  return std::unique_lock(mutex, std::adopt_lock);
}

}  // namespace rxe_user

#endif  // RXE_USER_BASE_TIMED_LOCK_H_
