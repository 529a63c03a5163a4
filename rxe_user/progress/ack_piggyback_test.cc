#include "rxe_user/progress/ack_piggyback.h"

#include <gtest/gtest.h>

namespace rxe_user {
namespace {

using transport::kMicrosecond;
using transport::Time;

class AckPiggybackTest : public ::testing::Test {
 protected:
  // Whether the lane holds the ACK of an arrival for the answer, which the
  // application posts after `delay`.
  bool Exchange(Time delay) {
    now_ += 1000 * kMicrosecond;
    const bool expected = acks_.OnArrival(now_);
    now_ += delay;
    acks_.OnPost(now_);
    return expected;
  }
  Time now_ = 0;
  AckPiggyback acks_;
};

TEST_F(AckPiggybackTest, ExpectsAnAnswerAfterFourInARow) {
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(Exchange(5 * kMicrosecond)) << i;
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(Exchange(199 * kMicrosecond)) << i;
}

TEST_F(AckPiggybackTest, ALateAnswerIsNone) {
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(Exchange(200 * kMicrosecond));
  for (int i = 0; i < 4; ++i) Exchange(0);
  EXPECT_TRUE(Exchange(200 * kMicrosecond));
  EXPECT_FALSE(Exchange(0));
}

TEST_F(AckPiggybackTest, AnArrivalWithoutAnAnswerEndsIt) {
  for (int i = 0; i < 4; ++i) Exchange(0);
  EXPECT_TRUE(acks_.OnArrival(now_));
  EXPECT_FALSE(acks_.OnArrival(now_));
  acks_.OnPost(now_);
  EXPECT_FALSE(acks_.OnArrival(now_));
}

TEST_F(AckPiggybackTest, PostsOfItsOwnAreNoAnswers) {
  for (int i = 0; i < 10; ++i) acks_.OnPost(now_);
  EXPECT_FALSE(Exchange(0));
}

}  // namespace
}  // namespace rxe_user
