// Whether the calling thread's polls have found nothing for long, although
// other threads of its lane find something.
#ifndef RXE_USER_PROGRESS_THREAD_ACTIVITY_H_
#define RXE_USER_PROGRESS_THREAD_ACTIVITY_H_

#include "transport/base/types.h"

namespace rxe_user {

// AppActivity is a lane's, for all threads. With more polling threads than
// cores on one lane, some thread has always just found something, so none would
// yield by AppActivity alone: each would poll until its time slice ends, and a
// message would take 4 ms. State is per thread: no lock.
class ThreadActivity {
 public:
  // The calling thread has found, taken or posted something.
  static void OnUseful() { useful_ = true; }
  // The thread's poll at `now` has found nothing. True: its polls have found
  // nothing for longer than `limit` (ns).
  static bool IdleFor(transport::Time limit, transport::Time now) {
    if (useful_) {
      useful_ = false;
      since_ = now;
    }
    return now - since_ > limit;
  }

 private:
  // In the library's static TLS block: an access needs no call.
  [[gnu::tls_model(
      "initial-exec")]] static inline constinit thread_local bool useful_ =
      true;  // idle time starts with the first poll
  [[gnu::tls_model(
      "initial-exec")]] static inline constinit thread_local transport::Time
      since_ = 0;
};

}  // namespace rxe_user

#endif  // RXE_USER_PROGRESS_THREAD_ACTIVITY_H_
