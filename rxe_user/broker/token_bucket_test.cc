#include "rxe_user/broker/token_bucket.h"

#include "gtest/gtest.h"

namespace rxe_user::broker {
namespace {

// Allowed calls of one every `gap_ms` for five seconds.
int Allowed(int64_t gap_ms) {
  TokenBucket bucket(10, 20);
  int allowed = 0;
  for (int64_t now_ms = 1'000'000; now_ms < 1'005'000; now_ms += gap_ms) {
    allowed += bucket.Take(now_ms);
  }
  return allowed;
}

TEST(TokenBucketTest, TheRateDoesNotDependOnHowOftenItIsAsked) {
  for (const int64_t gap_ms : {1, 7, 20, 49}) {
    EXPECT_NEAR(Allowed(gap_ms), 20 + 50, 1) << gap_ms;
  }
}

}  // namespace
}  // namespace rxe_user::broker
