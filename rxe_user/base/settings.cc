#include "rxe_user/base/settings.h"

#include <stdio.h>
#include <stdlib.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace rxe_user {
namespace {

constexpr int kMostSpinUs = 1'000'000;

}  // namespace

transport::Time HelperSpin() {
  static std::atomic<bool> told = false;
  const char* const value = ::getenv("RXE_USER_SPIN_US");
  if (value == nullptr || *value == '\0') return 0;
  int us;
  if (!absl::SimpleAtoi(value, &us) || us < 0 || us > kMostSpinUs) {
    TellOnce(told, absl::StrCat("RXE_USER_SPIN_US is '", value,
                                "', not a number of microseconds from 0 to ",
                                kMostSpinUs, ": ignored"));
    return 0;
  }
  return us * transport::kMicrosecond;
}

void TellOnce(std::atomic<bool>& told, const std::string& line) {
  if (!told.exchange(true)) ::fprintf(stderr, "rxe_user: %s\n", line.c_str());
}

}  // namespace rxe_user
