#include "rxe_user/base/settings.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <span>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "rxe_user/base/environment.h"
#include "rxe_user/base/lane_set.h"
#include "rxe_user/base/warn_once.h"

namespace rxe_user {
namespace {

constexpr int kMaxSpinUs = 1'000'000;

// The value of `variable`, a number of `what` from `min` to `max`. `unset` if
// it is absent or wrong.
int Number(const char* variable, const char* what, int min, int max,
           int unset) {
  const char* const value = Environment(variable);
  if (value == nullptr || *value == '\0') return unset;
  int number;
  if (absl::SimpleAtoi(value, &number) && min <= number && number <= max) {
    return number;
  }
  WarnOnceAbout(variable,
                absl::StrCat(variable, " is '", value, "', not a number of ",
                             what, " from ", min, " to ", max, ": ignored"));
  return unset;
}

// The index of the value of `variable` in `values`. 0 if it is unset, empty or
// wrong; a warning then calls the value `wrong` ("neither 0 nor 1").
size_t Choice(const char* variable, std::span<const std::string_view> values,
              const char* wrong) {
  const char* const value = Environment(variable);
  if (value == nullptr || *value == '\0') return 0;
  const auto known = std::ranges::find(values, value);
  if (known != values.end()) return static_cast<size_t>(known - values.begin());
  WarnOnceAbout(variable, absl::StrCat(variable, " is '", value, "', ", wrong,
                                       ": ignored"));
  return 0;
}

}  // namespace

bool IsOn(const char* variable) {
  static constexpr std::string_view kValues[] = {"0", "1"};
  return Choice(variable, kValues, "neither 0 nor 1") == 1;
}

transport::Time HelperSpin() {
  return Number("RXE_USER_SPIN_US", "microseconds", 0, kMaxSpinUs, 0) *
         transport::kMicrosecond;
}

int LaneCount() { return Number("RXE_USER_LANES", "lanes", 1, kMaxLanes, 1); }

bool AllMlx5() { return IsOn("RXE_USER_MLX5"); }

bool SameHostMemory() {
  static constexpr std::string_view kValues[] = {"memory", "udp"};
  return Choice("RXE_USER_SAME_HOST", kValues, "neither udp nor memory") == 0;
}

Io IoSetting() {
  // In the order of Io.
  static constexpr std::string_view kValues[] = {"auto", "sockets", "uring",
                                                 "uring-sqpoll"};
  static_assert(std::size(kValues) ==
                static_cast<size_t>(Io::kUringSqpoll) + 1);
  return static_cast<Io>(Choice("RXE_USER_IO", kValues,
                                "not auto, sockets, uring or uring-sqpoll"));
}

}  // namespace rxe_user
