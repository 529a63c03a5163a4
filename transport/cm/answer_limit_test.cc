#include "transport/cm/answer_limit.h"

#include <gtest/gtest.h>

namespace transport::cm {
namespace {

const wire::IpAddress kA = *wire::IpAddress::Parse("10.0.0.1");
const wire::IpAddress kB = *wire::IpAddress::Parse("10.0.0.2");

int Allowed(AnswerLimit& limit, const wire::IpAddress& address, Time now) {
  int count = 0;
  while (count < 1000 && limit.Allow(address, now)) ++count;
  return count;
}

TEST(AnswerLimitTest, ABurstThenTheRate) {
  AnswerLimit limit(1, 100, 5);
  EXPECT_EQ(Allowed(limit, kA, 0), 5);
  EXPECT_EQ(Allowed(limit, kA, 9 * kMillisecond), 0);
  EXPECT_EQ(Allowed(limit, kA, 10 * kMillisecond), 1);
  // Fractions of a token are kept.
  EXPECT_EQ(Allowed(limit, kA, 25 * kMillisecond), 1);
  EXPECT_EQ(Allowed(limit, kA, 30 * kMillisecond), 1);
  // At most a burst accumulates.
  EXPECT_EQ(Allowed(limit, kA, 3600 * kSecond), 5);
}

TEST(AnswerLimitTest, AddressesAreLimitedSeparately) {
  AnswerLimit limit(1, 100, 5);
  EXPECT_EQ(Allowed(limit, kA, 0), 5);
  EXPECT_EQ(Allowed(limit, kB, 0), 5);
}

TEST(AnswerLimitTest, ARateOfZeroLeavesTheBurst) {
  AnswerLimit limit(1, 0, 2);
  EXPECT_EQ(Allowed(limit, kA, 0), 2);
  EXPECT_EQ(Allowed(limit, kA, kSecond), 0);
}

}  // namespace
}  // namespace transport::cm
