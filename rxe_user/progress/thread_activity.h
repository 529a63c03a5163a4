// Whether the calling thread polls for nothing, while others that share its
// lane find something.
#ifndef RXE_USER_PROGRESS_THREAD_ACTIVITY_H_
#define RXE_USER_PROGRESS_THREAD_ACTIVITY_H_

#include "transport/base/types.h"

namespace rxe_user {

// AppActivity knows when a lane had anything last, for whichever thread. With
// more polling threads than cores on one lane there is always one that has just
// had something, so none would leave its core to the one that all wait for:
// each would poll until its slice is over, 4 ms for a message.
class ThreadActivity {
 public:
  // The calling thread has found, taken or posted something.
  static void OnUseful() { useful_ = true; }
  // It has polled for nothing at `now`: whether it does for longer than
  // `limit`.
  static bool IdleFor(transport::Time limit, transport::Time now) {
    if (useful_) {
      useful_ = false;
      since_ = now;
    }
    return now - since_ > limit;
  }

 private:
  // In the static block of the library: polls get there without a call.
  [[gnu::tls_model(
      "initial-exec")]] static inline constinit thread_local bool useful_ =
      true;  // the first poll begins
  [[gnu::tls_model(
      "initial-exec")]] static inline constinit thread_local transport::Time
      since_ = 0;
};

}  // namespace rxe_user

#endif  // RXE_USER_PROGRESS_THREAD_ACTIVITY_H_
