#ifndef RXE_USER_BASE_SEMAPHORE_H_
#define RXE_USER_BASE_SEMAPHORE_H_

#include <atomic>
#include <cstdint>

namespace rxe_user {

// A semaphore that is 0 or 1. That of libstdc++ 11 and 12 loses wake-ups (GCC
// bug 104928): who has seen it free, finds it taken, and goes to sleep while it
// becomes free again, sleeps on.
//
// Thread: any; another one than took it may release it. No cancellation point.
// In a child of fork() it has the value that it had.
class BinarySemaphore {
 public:
  explicit BinarySemaphore(bool free) : state_(free ? kFree : kTaken) {}
  BinarySemaphore(const BinarySemaphore&) = delete;
  BinarySemaphore& operator=(const BinarySemaphore&) = delete;

  void Acquire();
  // Not of one that is free.
  void Release();

 private:
  enum : uint32_t { kFree, kTaken, kTakenAndSleepers };
  std::atomic<uint32_t> state_;
};

}  // namespace rxe_user

#endif  // RXE_USER_BASE_SEMAPHORE_H_
