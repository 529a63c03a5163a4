// What each process has one of, after a fork during which another thread was
// creating it.
#include "rxe_user/testing/first_use.h"

#include "gtest/gtest.h"
#include "verbs_api/librdmacm/devices.h"
#include "verbs_api/librdmacm/id.h"
#include "verbs_api/rsockets/connection_thread.h"

namespace librdmacm {
namespace {

using rxe_user::StatusOfFirstUseInChild;

// First: the service of librdmacm uses it.
TEST(FirstUse, CmService) {
  EXPECT_EQ(StatusOfFirstUseInChild([] {
              rxe_user::CmService::Get(
                  []() -> absl::StatusOr<std::unique_ptr<rxe_user::Slot>> {
                    return absl::UnavailableError("");
                  });
            }),
            0);
}

TEST(FirstUse, Service) {
  EXPECT_EQ(StatusOfFirstUseInChild([] { Service(); }), 0);
}

TEST(FirstUse, Devices) {
  EXPECT_EQ(StatusOfFirstUseInChild([] { OnInterfaceGone(1); }), 0);
}

TEST(FirstUse, ConnectionThread) {
  EXPECT_EQ(StatusOfFirstUseInChild([] { rsockets::ConnectionThread::Get(); }),
            0);
}

}  // namespace
}  // namespace librdmacm
