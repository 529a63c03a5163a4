// The lock of a lane. Waiters spin briefly, since it is held for microseconds,
// and then sleep on a futex. The holder can see that other threads wait.
// pthread_cancel takes effect after Unlock, because the code under the lock has
// cancellation points such as write(). A child of fork can reset the lock if
// its holder does not exist there.
#ifndef RXE_USER_ENGINE_ADAPTIVE_LOCK_H_
#define RXE_USER_ENGINE_ADAPTIVE_LOCK_H_

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace rxe_user {

class AdaptiveLock {
 public:
  class Guard {
   public:
    explicit Guard(AdaptiveLock& lock) : lock_(lock) { lock_.Lock(); }
    ~Guard() { lock_.Unlock(); }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    AdaptiveLock& lock_;
  };

  bool TryLock() {
    int before;
    ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    if (Take()) {
      cancel_state_ = before;
      return true;
    }
    ::pthread_setcancelstate(before, nullptr);
    return false;
  }
  void Lock() {
    int before;
    ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    if (!Take()) TakeSlowly();
    cancel_state_ = before;
  }
  // Gives up after `limit` ns. For exit() and fork(), where the holder may
  // never continue.
  bool TryLockFor(int64_t limit);
  void Unlock() {
    const int before = cancel_state_;
    if (state_.exchange(kFree, std::memory_order_release) == kHeldAndSleepers) {
      WakeOne();
    }
    ::pthread_setcancelstate(before, nullptr);
  }
  // Whether another thread is waiting in Lock(). A hint.
  bool contended() const {
    return waiting_.load(std::memory_order_relaxed) != 0;
  }
  // Whether a thread holds it. A hint.
  bool held() const { return state_.load(std::memory_order_relaxed) != kFree; }
  // In the child of fork, which has one thread: frees the lock, whoever held
  // it.
  void ResetInChild() {
    waiting_.store(0, std::memory_order_relaxed);
    state_.store(kFree, std::memory_order_relaxed);
  }

 private:
  enum : uint32_t { kFree, kHeld, kHeldAndSleepers };
  bool Take() {
    uint32_t expected = kFree;
    return state_.load(std::memory_order_relaxed) == kFree &&
           state_.compare_exchange_strong(expected, kHeld,
                                          std::memory_order_acquire,
                                          std::memory_order_relaxed);
  }
  void TakeSlowly();
  void WakeOne();

  std::atomic<uint32_t> state_ = kFree;
  std::atomic<uint32_t> waiting_ = 0;
  int cancel_state_ = PTHREAD_CANCEL_ENABLE;  // the holder's; guarded by state_
};

}  // namespace rxe_user

#endif  // RXE_USER_ENGINE_ADAPTIVE_LOCK_H_
