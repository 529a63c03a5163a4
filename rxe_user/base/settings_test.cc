#include "rxe_user/base/settings.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>

namespace rxe_user {
namespace {

using transport::kMicrosecond;
using transport::kSecond;

transport::Time SpinWith(const char* value) {
  ::setenv("RXE_USER_SPIN_US", value, 1);
  const transport::Time spin = HelperSpin();
  ::unsetenv("RXE_USER_SPIN_US");
  return spin;
}

TEST(HelperSpin, FollowsTheEnvironment) {
  EXPECT_EQ(HelperSpin(), 0);
  testing::internal::CaptureStderr();
  EXPECT_EQ(SpinWith(""), 0);
  EXPECT_EQ(SpinWith("0"), 0);
  EXPECT_EQ(SpinWith("50"), 50 * kMicrosecond);
  EXPECT_EQ(SpinWith("1000000"), kSecond);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(HelperSpin, ComplainsOfAWrongValueOnce) {
  testing::internal::CaptureStderr();
  for (const char* wrong : {"soon", "-1", "50us", "1000001", "99999999999"}) {
    EXPECT_EQ(SpinWith(wrong), 0) << wrong;
  }
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_NE(told.find("RXE_USER_SPIN_US is 'soon'"), std::string::npos);
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1);
}

}  // namespace
}  // namespace rxe_user
