#include "rxe_user/broker/exclusive_slot.h"

#include <gtest/gtest.h>

#include "rxe_user/testing/first_use.h"

namespace rxe_user::broker {
namespace {

TEST(ExclusiveSlot, FirstUseInAChildOfFork) {
  EXPECT_EQ(StatusOfFirstUseInChild([] { MakeExclusiveSlot("for a test"); }),
            0);
}

}  // namespace
}  // namespace rxe_user::broker
