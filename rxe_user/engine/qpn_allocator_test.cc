#include "rxe_user/engine/qpn_allocator.h"

#include <gtest/gtest.h>

#include <set>

namespace rxe_user {
namespace {

TEST(QpnAllocator, ReturnsEveryNumberOnceAndNoSpecialOnes) {
  QpnAllocator numbers;
  std::set<uint16_t> seen;
  for (int i = 0; i < 4094; ++i) {
    const auto number = numbers.Allocate();
    ASSERT_TRUE(number.has_value());
    EXPECT_GT(*number, 1);
    EXPECT_TRUE(seen.insert(*number).second);
  }
  EXPECT_FALSE(numbers.Allocate().has_value());
  numbers.Release(77);
  EXPECT_EQ(numbers.Allocate(), 77);
}

TEST(QpnAllocator, DoesNotReuseSoon) {
  QpnAllocator numbers;
  const auto first = numbers.Allocate();
  numbers.Release(*first);
  for (int i = 0; i < 1000; ++i) {
    const auto next = numbers.Allocate();
    ASSERT_NE(next, first);
    numbers.Release(*next);
  }
}

TEST(QpnAllocator, IsSparseAndRandom) {
  QpnAllocator one;
  QpnAllocator two;
  int equal = 0;
  int neighbors = 0;
  int last = -2;
  for (int i = 0; i < 100; ++i) {
    const int a = *one.Allocate();
    equal += a == *two.Allocate();
    neighbors += a == last + 1;
    last = a;
  }
  EXPECT_LT(equal, 10);
  EXPECT_LT(neighbors, 10);
}

TEST(QpnAllocator, IgnoresNumbersThatWereNeverAllocated) {
  QpnAllocator numbers;
  numbers.Release(0);
  numbers.Release(1);
  numbers.Release(500);
  for (int i = 0; i < 1000; ++i) EXPECT_GT(*numbers.Allocate(), 1);
}

}  // namespace
}  // namespace rxe_user
