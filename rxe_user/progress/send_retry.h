// When sends that the system did not take are tried again.
#ifndef RXE_USER_PROGRESS_SEND_RETRY_H_
#define RXE_USER_PROGRESS_SEND_RETRY_H_

#include <algorithm>

#include "transport/base/types.h"

namespace rxe_user {

class SendRetry {
 public:
  // At first: a full send buffer of the default size drains in about so long.
  static constexpr transport::Time kFirst = 50 * transport::kMicrosecond;
  // At most, doubling in between: where memory is short it costs little to ask
  // 200 times a second.
  static constexpr transport::Time kMost = 5 * transport::kMillisecond;

  // Sending has been tried at `now`, and is blocked (still, again) or not.
  // Tries that come before their time do not lengthen the interval.
  void OnTransmit(bool blocked, transport::Time now) {
    if (!blocked) {
      interval_ = kFirst;
      at_ = transport::kNever;
    } else if (at_ == transport::kNever || now >= at_) {
      at_ = now + interval_;
      interval_ = std::min(interval_ * 2, kMost);
    }
  }
  // When to try again; kNever while nothing is blocked.
  transport::Time at() const { return at_; }

 private:
  transport::Time at_ = transport::kNever;
  transport::Time interval_ = kFirst;
};

}  // namespace rxe_user

#endif  // RXE_USER_PROGRESS_SEND_RETRY_H_
