// The lock of a lane: spins for a moment, since holders are quick, then sleeps
// on a futex. Its holder can see that others want it, cannot be cancelled
// (pthread_cancel waits for Unlock: under the lock there are cancellation
// points such as write), and may vanish in a child of fork.
#ifndef RXE_USER_ENGINE_ADAPTIVE_LOCK_H_
#define RXE_USER_ENGINE_ADAPTIVE_LOCK_H_

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace rxe_user {

class AdaptiveLock {
 public:
  // Holds it for as long as it lives.
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
  // Gives up after `limit` ns: for who cannot know whether the holder will go
  // on.
  bool TryLockFor(int64_t limit);
  void Unlock() {
    const int before = cancel_state_;
    if (state_.exchange(kFree, std::memory_order_release) == kHeldAndSleepers) {
      WakeOne();
    }
    ::pthread_setcancelstate(before, nullptr);
  }
  // Whether another thread is waiting in Lock().
  bool contended() const {
    return waiting_.load(std::memory_order_relaxed) != 0;
  }
  // Whether somebody has it: a hint.
  bool held() const { return state_.load(std::memory_order_relaxed) != kFree; }
  // In the child of fork, where no other thread is left: free, whoever held it.
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
