#include "rxe_user/base/settings.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "rxe_user/base/environment.h"

namespace rxe_user {
namespace {

using transport::kMicrosecond;
using transport::kSecond;

// The result of `setting` while `variable` is `value`.
template <typename Setting>
auto With(const char* variable, const char* value, Setting setting) {
  ::setenv(variable, value, 1);
  const auto result = setting();
  ::unsetenv(variable);
  return result;
}

transport::Time SpinWith(const char* value) {
  return With("RXE_USER_SPIN_US", value, HelperSpin);
}
int LanesWith(const char* value) {
  return With("RXE_USER_LANES", value, LaneCount);
}

TEST(UnknownSettings, FindsMisspelledSettings) {
  for (const std::string_view name : SettingNames()) {
    ::setenv(std::string(name).c_str(), "1", 1);
  }
  ::setenv("RXE_USER_TEST_ANYTHING", "1", 1);
  ::setenv("OTHER_RXE_USER_LANES", "1", 1);
  EXPECT_EQ(UnknownSettings(), std::vector<std::string>());
  ::setenv("RXE_USER_LANE", "2", 1);
  ::setenv("RXE_USER_", "", 1);
  EXPECT_EQ(UnknownSettings(),
            (std::vector<std::string>{"RXE_USER_LANE", "RXE_USER_"}));
  ::unsetenv("RXE_USER_LANE");
  ::unsetenv("RXE_USER_");
  for (const std::string_view name : SettingNames()) {
    ::unsetenv(std::string(name).c_str());
  }
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

TEST(HelperSpin, WarnsOfAWrongValueOnce) {
  testing::internal::CaptureStderr();
  for (const char* wrong : {"soon", "-1", "50us", "1000001", "99999999999"}) {
    EXPECT_EQ(SpinWith(wrong), 0) << wrong;
  }
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_NE(told.find("RXE_USER_SPIN_US is 'soon'"), std::string::npos);
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1);
}

TEST(LaneCount, FollowsTheEnvironment) {
  EXPECT_EQ(LaneCount(), 1);
  testing::internal::CaptureStderr();
  EXPECT_EQ(LanesWith(""), 1);
  EXPECT_EQ(LanesWith("1"), 1);
  EXPECT_EQ(LanesWith("4"), 4);
  EXPECT_EQ(LanesWith("16"), 16);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(LaneCount, WarnsOfAWrongValueOnce) {
  testing::internal::CaptureStderr();
  for (const char* wrong : {"0", "-1", "x", "1000", "2x", "17"}) {
    EXPECT_EQ(LanesWith(wrong), 1) << wrong;
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "rxe_user: RXE_USER_LANES is '0', not a number of lanes from 1 to "
            "16: ignored\n");
}

TEST(AllMlx5, FollowsTheEnvironment) {
  const auto with = [](const char* value) {
    return With("RXE_USER_MLX5", value, AllMlx5);
  };
  EXPECT_FALSE(AllMlx5());
  testing::internal::CaptureStderr();
  EXPECT_FALSE(with(""));
  EXPECT_FALSE(with("0"));
  EXPECT_TRUE(with("1"));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  testing::internal::CaptureStderr();
  EXPECT_FALSE(with("yes"));
  EXPECT_FALSE(with("yes"));
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "rxe_user: RXE_USER_MLX5 is 'yes', neither 0 nor 1: ignored\n");
}

}  // namespace
TEST(SameHostMemory, FollowsTheEnvironment) {
  const auto with = [](const char* value) {
    return With("RXE_USER_SAME_HOST", value, SameHostMemory);
  };
  ::unsetenv("RXE_USER_SAME_HOST");
  testing::internal::CaptureStderr();
  EXPECT_TRUE(SameHostMemory());
  EXPECT_TRUE(with(""));
  EXPECT_TRUE(with("memory"));
  EXPECT_FALSE(with("udp"));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  testing::internal::CaptureStderr();
  EXPECT_TRUE(with("UDP"));
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "rxe_user: RXE_USER_SAME_HOST is 'UDP', neither udp nor memory: "
            "ignored\n");
}

TEST(IoSetting, FollowsTheEnvironment) {
  const auto with = [](const char* value) {
    return With("RXE_USER_IO", value, IoSetting);
  };
  testing::internal::CaptureStderr();
  EXPECT_EQ(IoSetting(), Io::kAuto);
  EXPECT_EQ(with(""), Io::kAuto);
  EXPECT_EQ(with("auto"), Io::kAuto);
  EXPECT_EQ(with("sockets"), Io::kSockets);
  EXPECT_EQ(with("uring"), Io::kUring);
  EXPECT_EQ(with("uring-sqpoll"), Io::kUringSqpoll);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  testing::internal::CaptureStderr();
  EXPECT_EQ(with("io_uring"), Io::kAuto);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "rxe_user: RXE_USER_IO is 'io_uring', not auto, sockets, uring "
            "or uring-sqpoll: ignored\n");
}

}  // namespace rxe_user
