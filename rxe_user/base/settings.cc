#include "rxe_user/base/settings.h"

#include <cstring>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "rxe_user/base/environment.h"
#include "rxe_user/base/lane_set.h"
#include "rxe_user/base/warn_once.h"

namespace rxe_user {
namespace {

constexpr int kMaxSpinUs = 1'000'000;

// The value of `variable`, a number of `what` from `min` to `max`. `unset`
// if it is absent or wrong.
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

// Whether the value of `variable` is `other`. Unset, empty and `unset`: false.
bool IsOther(const char* variable, const char* other, const char* unset) {
  const char* const value = Environment(variable);
  if (value == nullptr || *value == '\0' || std::strcmp(value, unset) == 0) {
    return false;
  }
  if (std::strcmp(value, other) == 0) return true;
  WarnOnceAbout(variable, absl::StrCat(variable, " is '", value, "', neither ",
                                       other, " nor ", unset, ": ignored"));
  return false;
}

}  // namespace

bool IsOn(const char* variable) {
  const char* const value = Environment(variable);
  if (value == nullptr || *value == '\0' || std::strcmp(value, "0") == 0) {
    return false;
  }
  if (std::strcmp(value, "1") == 0) return true;
  WarnOnceAbout(variable, absl::StrCat(variable, " is '", value,
                                       "', neither 0 nor 1: ignored"));
  return false;
}

transport::Time HelperSpin() {
  return Number("RXE_USER_SPIN_US", "microseconds", 0, kMaxSpinUs, 0) *
         transport::kMicrosecond;
}

int LaneCount() { return Number("RXE_USER_LANES", "lanes", 1, kMaxLanes, 1); }

bool AllMlx5() { return IsOn("RXE_USER_MLX5"); }

bool SameHostMemory() {
  return !IsOther("RXE_USER_SAME_HOST", "udp", "memory");
}

Io IoSetting() {
  const char* const value = Environment("RXE_USER_IO");
  const std::string_view io = value != nullptr ? value : "";
  if (io.empty() || io == "auto") return Io::kAuto;
  if (io == "sockets") return Io::kSockets;
  if (io == "uring") return Io::kUring;
  if (io == "uring-sqpoll") return Io::kUringSqpoll;
  WarnOnceAbout(
      "RXE_USER_IO",
      absl::StrCat("RXE_USER_IO is '", value,
                   "', not auto, sockets, uring or uring-sqpoll: ignored"));
  return Io::kAuto;
}

}  // namespace rxe_user
