// Disables thread cancellation in a scope.
#ifndef RXE_USER_BASE_NO_CANCELLATION_H_
#define RXE_USER_BASE_NO_CANCELLATION_H_

#include <pthread.h>

namespace rxe_user {

// While it lives, the calling thread is not cancelled (pthread_cancel(3)),
// since unwinding would leave allocations, locks and system state half done. A
// pending request takes effect at the thread's next cancellation point after
// that.
class NoCancellation {
 public:
  NoCancellation() {
    ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_);
  }
  ~NoCancellation() { ::pthread_setcancelstate(before_, nullptr); }
  NoCancellation(const NoCancellation&) = delete;
  NoCancellation& operator=(const NoCancellation&) = delete;

 private:
  int before_;
};

}  // namespace rxe_user

#endif  // RXE_USER_BASE_NO_CANCELLATION_H_
