#include "rxe_user/progress/adaptive_arming.h"

#include <gtest/gtest.h>

namespace rxe_user {
namespace {

class AdaptiveArmingTest : public ::testing::Test {
 protected:
  void Activate() {
    for (int i = 0; i < 3; ++i) arming_.OnMissedArrival();
    ASSERT_TRUE(arming_.active());
    ASSERT_TRUE(arming_.armed());
  }
  void Poll(bool useful) { arming_.OnPoll(useful, ++calls_); }

  AdaptiveArming arming_;
  uint32_t calls_ = 0;
};

TEST_F(AdaptiveArmingTest, BeginsWithTheThirdMissInARow) {
  arming_.OnMissedArrival();
  arming_.OnMissedArrival();
  EXPECT_FALSE(arming_.active());
  arming_.OnMissedArrival();
  EXPECT_TRUE(arming_.active());
}

TEST_F(AdaptiveArmingTest, NotIfTheApplicationMostlyPolls) {
  for (int i = 0; i < 100; ++i) {
    arming_.OnMissedArrival();
    for (int checks = 0; checks < 3; ++checks) arming_.OnFoundPolling();
  }
  EXPECT_FALSE(arming_.active());
}

TEST_F(AdaptiveArmingTest, ArmsWhenSomethingCameAndDisarmsWhenPollingGoesOn) {
  Activate();
  Poll(false);
  EXPECT_TRUE(arming_.armed()) << "one poll is none";
  Poll(false);
  EXPECT_FALSE(arming_.armed());
  Poll(true);
  EXPECT_TRUE(arming_.armed());
}

TEST_F(AdaptiveArmingTest, EndsWhenItWasForNothing) {
  Activate();
  for (int i = 0; i < AdaptiveArming::kSpurious; ++i) {
    EXPECT_TRUE(arming_.active()) << i;
    Poll(true);
  }
  EXPECT_FALSE(arming_.active());
  EXPECT_FALSE(arming_.armed());
}

TEST_F(AdaptiveArmingTest, GoesOnAsLongAsTheHelperIsNeeded) {
  Activate();
  for (int i = 0; i < 100; ++i) {
    Poll(true);
    if (i % 10 == 0) arming_.OnWoken(calls_);
  }
  EXPECT_TRUE(arming_.active());
  // Wake-ups for nothing do not count if the application returned by itself
  // meanwhile.
  for (int i = 0; i < 100; ++i) {
    Poll(true);
    arming_.OnWoken(calls_ + 1);
  }
  EXPECT_FALSE(arming_.active());
}

}  // namespace
}  // namespace rxe_user
