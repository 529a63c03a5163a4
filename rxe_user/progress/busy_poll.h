// Whether the helper polls the sockets for more before it sleeps.
#ifndef RXE_USER_PROGRESS_BUSY_POLL_H_
#define RXE_USER_PROGRESS_BUSY_POLL_H_

#include <cstddef>

#include "rxe_user/progress/app_activity.h"
#include "transport/base/types.h"

namespace rxe_user {

// One mechanism, two limits: the user's, after anything has come in; and one of
// its own, while bulk flows past an application that does not poll.
class BusyPoll {
 public:
  // Pieces of bulk that come so close together are waited for as long. To be
  // woken takes about as much, and the waker, the peer in full flow, some
  // microseconds. The passive end of ib_write_bw 64 KB sleeps 300 times a
  // second rather than 15,000.
  static constexpr transport::Time kBulkGap = 50 * transport::kMicrosecond;
  // What moves together is bulk from so many bytes on: sending it takes longer
  // than waking its receiver.
  static constexpr size_t kBulkBytes = 16 << 10;

  // `user_limit`: RXE_USER_SPIN_US.
  void SetUserLimit(transport::Time user_limit) { user_limit_ = user_limit; }

  // The helper has received and sent so many bytes, and it is `now`. True: it
  // is to look for more at once. `poll_age`: since the application polled. One
  // that polls at all may be the one whose core that would take.
  bool OnRound(size_t received, size_t sent, transport::Time poll_age,
               transport::Time now) {
    const bool bulk =
        now - last_bulk_ < kBulkGap && poll_age >= AppActivity::kPollsAtAll;
    if (received + sent >= kBulkBytes) last_bulk_ = now;
    if (received != 0) last_received_ = now;
    return bulk || now - last_received_ < user_limit_;
  }

 private:
  transport::Time user_limit_ = 0;
  transport::Time last_bulk_ = kLongAgo;
  transport::Time last_received_ = kLongAgo;
};

}  // namespace rxe_user

#endif  // RXE_USER_PROGRESS_BUSY_POLL_H_
