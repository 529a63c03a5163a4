// A binary semaphore that loses no wake-ups.
#ifndef RXE_USER_BASE_SEMAPHORE_H_
#define RXE_USER_BASE_SEMAPHORE_H_

#include <semaphore.h>

#include "rxe_user/base/no_cancellation.h"

namespace rxe_user {

// A semaphore with the values 0 and 1, from glibc. The one in libstdc++ 11 and
// 12 loses wake-ups (GCC bug 104928): a thread that fails to take it may sleep
// although it has become free again.
//
// Thread: any; a thread other than the one that took it may release it. No
// cancellation point. A child of fork() inherits its value.
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
    while (::sem_wait(&semaphore_) != 0) {  // a signal interrupted it
    }
  }
  // The semaphore must be taken.
  void Release() { ::sem_post(&semaphore_); }

 private:
  sem_t semaphore_;
};

}  // namespace rxe_user

#endif  // RXE_USER_BASE_SEMAPHORE_H_
