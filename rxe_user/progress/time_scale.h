// How much slower this processor is than a current one.
#ifndef RXE_USER_PROGRESS_TIME_SCALE_H_
#define RXE_USER_PROGRESS_TIME_SCALE_H_

#include <algorithm>

#include "transport/base/types.h"

namespace rxe_user {

// Measured once, when a lane is opened. Where a poll takes several
// microseconds, as in an emulated machine, a polling application would seem to
// have stopped unless all times are scaled.
class TimeScale {
 public:
  // Up to this, a processor counts as current, and times are unscaled.
  static constexpr transport::Time kUnit = transport::kMicrosecond;
  // Longer measurements count as this: the machine was probably busy.
  static constexpr transport::Time kMax = 20 * transport::kMicrosecond;

  TimeScale() = default;
  // `poll`: the shortest measured time of an empty receive.
  explicit TimeScale(transport::Time poll)
      : poll_(std::clamp(poll, kUnit, kMax)) {}

  // Scales `time`, which is meant for a current processor, to this one.
  transport::Time operator()(transport::Time time) const {
    return time * poll_ / kUnit;
  }

 private:
  transport::Time poll_ = kUnit;
};

}  // namespace rxe_user

#endif  // RXE_USER_PROGRESS_TIME_SCALE_H_
