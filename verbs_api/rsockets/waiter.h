// How a thread that waits hears of what others have found for it.
#ifndef VERBS_API_RSOCKETS_WAITER_H_
#define VERBS_API_RSOCKETS_WAITER_H_

#include <sys/types.h>

#include "rxe_user/base/unique_fd.h"

namespace rsockets {

// A descriptor that is readable once somebody has called Wake. A completion, or
// an event of the connection manager, wakes all who wait for the descriptors of
// a socket, but only one of them takes it; he wakes the others.
class Waiter {
 public:
  // That of the calling thread; null if there is no descriptor left.
  static Waiter* OfThisThread();

  int fd() const { return fd_.get(); }
  // Any thread.
  void Wake();
  // The thread that waits.
  void Clear();

 private:
  rxe_user::UniqueFd fd_;
  pid_t pid_ = 0;  // a child of fork has one of its own
};

}  // namespace rsockets

#endif  // VERBS_API_RSOCKETS_WAITER_H_
