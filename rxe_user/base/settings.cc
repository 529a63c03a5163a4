#include "rxe_user/base/settings.h"

#include <stdlib.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "rxe_user/base/warn_once.h"

namespace rxe_user {
namespace {

constexpr int kMostSpinUs = 1'000'000;

}  // namespace

transport::Time HelperSpin() {
  constexpr char kVariable[] = "RXE_USER_SPIN_US";
  const char* const value = ::getenv(kVariable);
  if (value == nullptr || *value == '\0') return 0;
  int us;
  if (!absl::SimpleAtoi(value, &us) || us < 0 || us > kMostSpinUs) {
    WarnOnceAbout(kVariable,
                  absl::StrCat(kVariable, " is '", value,
                               "', not a number of microseconds from 0 to ",
                               kMostSpinUs, ": ignored"));
    return 0;
  }
  return us * transport::kMicrosecond;
}

}  // namespace rxe_user
