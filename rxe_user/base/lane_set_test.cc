#include "rxe_user/base/lane_set.h"

#include <gtest/gtest.h>

namespace rxe_user {
namespace {

TEST(LaneUse, ContainsALaneWhileItHasUsers) {
  LaneUse use;
  EXPECT_EQ(use.lanes(), 0u);
  use.Add(0);
  use.Add(kMaxLanes - 1);
  use.Add(0);
  EXPECT_EQ(use.lanes(), OnlyLane(0) | OnlyLane(kMaxLanes - 1));
  use.Remove(0);
  EXPECT_EQ(use.lanes(), OnlyLane(0) | OnlyLane(kMaxLanes - 1));
  use.Remove(0);
  EXPECT_EQ(use.lanes(), OnlyLane(kMaxLanes - 1));
  use.Remove(kMaxLanes - 1);
  EXPECT_EQ(use.lanes(), 0u);
}

}  // namespace
}  // namespace rxe_user
