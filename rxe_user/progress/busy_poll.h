// Whether the helper polls the sockets for more before it sleeps.
#ifndef RXE_USER_PROGRESS_BUSY_POLL_H_
#define RXE_USER_PROGRESS_BUSY_POLL_H_

#include <cstddef>

#include "rxe_user/progress/app_activity.h"
#include "transport/base/types.h"

namespace rxe_user {

// There are two limits: the user's (RXE_USER_SPIN_US), after any arrival; and
// kBulkGap, during bulk traffic of an application that does not poll.
//
// Not thread-safe; the lane's lock guards it.
class BusyPoll {
 public:
  // Pieces of bulk that are closer together than this are polled for this long.
  // A wake-up takes about as long, and costs the sender, which is busy, some
  // microseconds. The passive end of ib_write_bw 64 KB sleeps 300 times a
  // second instead of 15,000 times.
  static constexpr transport::Time kBulkGap = 50 * transport::kMicrosecond;
  // A round that moves this many bytes is bulk: sending them takes longer than
  // waking their receiver.
  static constexpr size_t kBulkBytes = 16 << 10;

  // `user_limit`: RXE_USER_SPIN_US, in ns.
  void SetUserLimit(transport::Time user_limit) { user_limit_ = user_limit; }

  // The helper has received and sent this many bytes in a round that ended at
  // `now`. True: it polls again instead of sleeping. `poll_age`: time since the
  // application polled. An application that polls at all may need the core.
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
