// How much slower than a processor of today this one is.
#ifndef RXE_USER_PROGRESS_TIME_SCALE_H_
#define RXE_USER_PROGRESS_TIME_SCALE_H_

#include <algorithm>

#include "transport/base/types.h"

namespace rxe_user {

// Measured once, when a lane is opened. Where a poll takes several
// microseconds, as in an emulated machine, an application that polls looks like
// one that has stopped, unless times are longer too.
class TimeScale {
 public:
  // A processor of today: up to this, times are as they are written.
  static constexpr transport::Time kUnit = transport::kMicrosecond;
  // The slowest that is believed: more is a machine that was busy meanwhile.
  static constexpr transport::Time kMost = 20 * transport::kMicrosecond;

  TimeScale() = default;
  // `poll` is the least that asking the sockets in vain has taken.
  explicit TimeScale(transport::Time poll)
      : poll_(std::clamp(poll, kUnit, kMost)) {}

  // `time`, which suits a processor of today, for this one.
  transport::Time operator()(transport::Time time) const {
    return time * poll_ / kUnit;
  }

 private:
  transport::Time poll_ = kUnit;
};

}  // namespace rxe_user

#endif  // RXE_USER_PROGRESS_TIME_SCALE_H_
