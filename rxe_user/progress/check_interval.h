// How long the helper sleeps between checks of an application that polls.
#ifndef RXE_USER_PROGRESS_CHECK_INTERVAL_H_
#define RXE_USER_PROGRESS_CHECK_INTERVAL_H_

#include <algorithm>

#include "rxe_user/progress/time_scale.h"
#include "transport/base/types.h"

namespace rxe_user {

// Doubles with each check that finds the application polling. Only the helper
// thread uses it: no lock.
class CheckInterval {
 public:
  // The first interval: as long as the lease, so that a lease can expire within
  // it. (scaled)
  static constexpr transport::Time kFirst = 20 * transport::kMicrosecond;
  // The last interval. The helper takes 1 % of a core beside ib_write_bw 64 KB,
  // and 30 % if intervals do not grow. (scaled)
  static constexpr transport::Time kLast = 2560 * transport::kMicrosecond;
  // The limit on slow machines. Packets that arrive after the application has
  // stopped polling without a call wait this long at most.
  static constexpr transport::Time kMax = 5 * transport::kMillisecond;

  void Reset(TimeScale scale) {
    value_ = scale(kFirst);
    last_ = std::min(scale(kLast), kMax);
  }
  // `limit`: the longest that this call allows, ns.
  void Grow(transport::Time limit) {
    value_ = std::min({value_ * 2, last_, limit});
  }
  transport::Time value() const { return value_; }

 private:
  transport::Time value_ = kFirst;
  transport::Time last_ = kLast;
};

}  // namespace rxe_user

#endif  // RXE_USER_PROGRESS_CHECK_INTERVAL_H_
