#include "rxe_user/objects/context.h"

#include <cerrno>

#include "gtest/gtest.h"

namespace rxe_user {
namespace {

wire::IpAddress Ip(const char* text) { return *wire::IpAddress::Parse(text); }

TEST(StableGidsTest, AnAddressKeepsItsIndex) {
  Device before, now;
  for (const char* ip : {"192.0.2.1", "192.0.2.2", "192.0.2.3"}) {
    before.gids.push_back({Ip(ip), 0});
  }
  now.up = true;
  for (const char* ip : {"192.0.2.3", "192.0.2.1", "2001:db8::1"}) {
    now.gids.push_back({Ip(ip), 0});
  }
  const auto merged = WithStableGids(before, now);
  EXPECT_TRUE(merged->up);
  ASSERT_EQ(merged->gids.size(), 3u);
  EXPECT_EQ(merged->gids[0].address, Ip("192.0.2.1"));
  EXPECT_EQ(merged->gids[1].address, Ip("2001:db8::1"));  // in the free index
  EXPECT_EQ(merged->gids[2].address, Ip("192.0.2.3"));

  now.gids.clear();
  now.gids.push_back({Ip("192.0.2.3"), 0});
  const auto fewer = WithStableGids(*merged, now);
  ASSERT_EQ(fewer->gids.size(), 3u);
  EXPECT_TRUE(fewer->gids[0].address.is_unspecified());
  EXPECT_TRUE(fewer->gids[1].address.is_unspecified());
  EXPECT_EQ(fewer->gids[2].address, Ip("192.0.2.3"));
}

TEST(ReportedErrnoTest, IsTheClosestErrno) {
  EXPECT_EQ(ReportedErrno(absl::OkStatus()), 0);
  EXPECT_EQ(ReportedErrno(absl::UnavailableError("a")), EADDRINUSE);
  EXPECT_EQ(ReportedErrno(absl::PermissionDeniedError("b")), EACCES);
  EXPECT_EQ(ReportedErrno(absl::ResourceExhaustedError("c")), ENOMEM);
  EXPECT_EQ(ReportedErrno(absl::FailedPreconditionError("d")), ENODEV);
  EXPECT_EQ(ReportedErrno(absl::DeadlineExceededError("e")), ETIMEDOUT);
}

}  // namespace
}  // namespace rxe_user
