// Calls that are no cancellation points.
#ifndef RXE_USER_BASE_NO_CANCELLATION_H_
#define RXE_USER_BASE_NO_CANCELLATION_H_

#include <pthread.h>

namespace rxe_user {

// As long as it lives, the calling thread is not cancelled (pthread_cancel(3)):
// unwinding out of what allocates, locks and calls the system would leave that
// half done. A request that comes meanwhile waits for the thread's next
// cancellation point.
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
