// When sends that the system refused are retried.
#ifndef RXE_USER_PROGRESS_SEND_RETRY_H_
#define RXE_USER_PROGRESS_SEND_RETRY_H_

#include <algorithm>

#include "transport/base/types.h"

namespace rxe_user {

class SendRetry {
 public:
  // The first interval: a full send buffer of the default size drains in about
  // this time.
  static constexpr transport::Time kFirst = 50 * transport::kMicrosecond;
  // Intervals double up to this one. Where memory is short, 200 tries a second
  // cost little.
  static constexpr transport::Time kMax = 5 * transport::kMillisecond;

  // A send was tried at `now`. `blocked`: the system refused it. A try before
  // at() does not lengthen the interval.
  void OnTransmit(bool blocked, transport::Time now) {
    if (!blocked) {
      interval_ = kFirst;
      at_ = transport::kNever;
    } else if (at_ == transport::kNever || now >= at_) {
      at_ = now + interval_;
      interval_ = std::min(interval_ * 2, kMax);
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
