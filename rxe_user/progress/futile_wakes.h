// Sockets that wake threads for nothing: one that somebody has shut down is
// readable for ever, one that gives an error each time may be. Threads that
// wait for them by level would spin.
#ifndef RXE_USER_PROGRESS_FUTILE_WAKES_H_
#define RXE_USER_PROGRESS_FUTILE_WAKES_H_

#include "transport/base/types.h"

namespace rxe_user {

class FutileWakes {
 public:
  // So many in a row. Now and then another thread has received meanwhile, which
  // ends the row.
  static constexpr int kMany = 16;
  // What comes is then found by asking now and then.
  static constexpr transport::Time kRest = 5 * transport::kMillisecond;

  // Something has been received, by whomever.
  void OnReceived() { in_a_row_ = 0; }
  // A socket has woken a thread, which has received what there was. True: the
  // sockets are to rest. Behind a rest one more is enough for the next.
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
