// How long the helper leaves an application alone that polls.
#ifndef RXE_USER_PROGRESS_CHECK_INTERVAL_H_
#define RXE_USER_PROGRESS_CHECK_INTERVAL_H_

#include <algorithm>

#include "rxe_user/progress/time_scale.h"
#include "transport/base/types.h"

namespace rxe_user {

// Doubles with each check that finds it polling. The helper's own; not guarded.
class CheckInterval {
 public:
  // The first: as long as the lease, which has to have had the time to run out.
  // (scaled)
  static constexpr transport::Time kFirst = 20 * transport::kMicrosecond;
  // The last: by then the helper takes 1 % of a core beside ib_write_bw 64 KB,
  // 30 % without growing. (scaled)
  static constexpr transport::Time kLast = 2560 * transport::kMicrosecond;
  // However slow the machine is: what arrives when the application has stopped
  // polling without a word waits for so long.
  static constexpr transport::Time kMost = 5 * transport::kMillisecond;

  void Reset(TimeScale scale) {
    value_ = scale(kFirst);
    last_ = std::min(scale(kLast), kMost);
  }
  // `limit`: no further than this, for the time being.
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
