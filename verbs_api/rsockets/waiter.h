// How a waiting thread learns of results that other threads have taken.
#ifndef VERBS_API_RSOCKETS_WAITER_H_
#define VERBS_API_RSOCKETS_WAITER_H_

#include <sys/types.h>

#include "rxe_user/base/unique_fd.h"

namespace rsockets {

// A descriptor that Wake makes readable. A completion or an event of the
// connection manager wakes all threads that wait for the descriptors of a
// socket, but only one of them takes it. That thread wakes the others.
class Waiter {
 public:
  // The waiter of the calling thread; null if no descriptor is left.
  static Waiter* OfThisThread();

  int fd() const { return fd_.get(); }
  // Thread: any.
  void Wake();
  // Thread: the one that waits.
  void Clear();

 private:
  rxe_user::UniqueFd fd_;
  pid_t pid_ = 0;  // a child of fork gets its own
};

}  // namespace rsockets

#endif  // VERBS_API_RSOCKETS_WAITER_H_
