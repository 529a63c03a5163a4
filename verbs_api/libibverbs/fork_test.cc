#include <gtest/gtest.h>

#include "rxe_user/testing/first_use.h"
#include "verbs_api/libibverbs/lookup.h"

namespace verbs_api {
namespace {

TEST(WatchForks, FirstUseInAChildOfFork) {
  EXPECT_EQ(rxe_user::StatusOfFirstUseInChild(&WatchForks), 0);
}

}  // namespace
}  // namespace verbs_api
