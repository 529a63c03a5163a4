#include "rxe_user/base/settings.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "rxe_user/base/environment.h"
#include "rxe_user/base/lane_set.h"
#include "rxe_user/base/warn_once.h"

namespace rxe_user {
namespace {

constexpr int kMostSpinUs = 1'000'000;

// What `variable` says, a number of `what` from `least` to `most`; `unset`
// without it, or if its value is wrong.
int Number(const char* variable, const char* what, int least, int most,
           int unset) {
  const char* const value = Environment(variable);
  if (value == nullptr || *value == '\0') return unset;
  int number;
  if (absl::SimpleAtoi(value, &number) && least <= number && number <= most) {
    return number;
  }
  WarnOnceAbout(variable,
                absl::StrCat(variable, " is '", value, "', not a number of ",
                             what, " from ", least, " to ", most, ": ignored"));
  return unset;
}

}  // namespace

transport::Time HelperSpin() {
  return Number("RXE_USER_SPIN_US", "microseconds", 0, kMostSpinUs, 0) *
         transport::kMicrosecond;
}

int LaneCount() { return Number("RXE_USER_LANES", "lanes", 1, kMaxLanes, 1); }

}  // namespace rxe_user
