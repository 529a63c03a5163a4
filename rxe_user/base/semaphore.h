#ifndef RXE_USER_BASE_SEMAPHORE_H_
#define RXE_USER_BASE_SEMAPHORE_H_

#include <semaphore.h>

#include "rxe_user/base/no_cancellation.h"

namespace rxe_user {

// A semaphore that is 0 or 1, of glibc's. That of libstdc++ 11 and 12 loses
// wake-ups (GCC bug 104928): who has seen it free, finds it taken, and goes to
// sleep while it becomes free again, sleeps on.
//
// Thread: any; another one than took it may release it. No cancellation point.
// In a child of fork() it has the value that it had.
class BinarySemaphore {
 public:
  explicit BinarySemaphore(bool free) {
    ::sem_init(&semaphore_, 0, free ? 1 : 0);
  }
  ~BinarySemaphore() { ::sem_destroy(&semaphore_); }
  BinarySemaphore(const BinarySemaphore&) = delete;
  BinarySemaphore& operator=(const BinarySemaphore&) = delete;

  void Acquire() {
    const NoCancellation no_cancellation;
    while (::sem_wait(&semaphore_) != 0) {  // a signal came
    }
  }
  // Not of one that is free.
  void Release() { ::sem_post(&semaphore_); }

 private:
  sem_t semaphore_;
};

}  // namespace rxe_user

#endif  // RXE_USER_BASE_SEMAPHORE_H_
