// Sockets that wake threads for nothing: a socket that has been shut down stays
// readable forever, and one that fails each receive may as well. Threads that
// wait on them level-triggered would spin.
#ifndef RXE_USER_PROGRESS_FUTILE_WAKES_H_
#define RXE_USER_PROGRESS_FUTILE_WAKES_H_

#include "transport/base/types.h"

namespace rxe_user {

class FutileWakes {
 public:
  // This many futile wake-ups in a row disarm the sockets. The count restarts
  // whenever any thread receives something.
  static constexpr int kMany = 16;
  // Meanwhile the sockets are polled at this interval.
  static constexpr transport::Time kRest = 5 * transport::kMillisecond;

  // Any thread has received something.
  void OnReceived() { in_a_row_ = 0; }
  // A socket has woken the calling thread, which has received everything there
  // was. True: disarm the sockets for kRest. After that, one more futile
  // wake-up disarms them again.
  bool OnWake() {
    if (in_a_row_ + 1 < kMany) {
      ++in_a_row_;
      return false;
    }
    return true;
  }

 private:
  int in_a_row_ = 0;
};

}  // namespace rxe_user

#endif  // RXE_USER_PROGRESS_FUTILE_WAKES_H_
