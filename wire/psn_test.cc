#include "wire/psn.h"

#include <gtest/gtest.h>

namespace wire {
namespace {

TEST(PsnTest, AddsModulo24Bits) {
  EXPECT_EQ(PsnAdd(5, 3), 8u);
  EXPECT_EQ(PsnAdd(0xffffff, 1), 0u);
  EXPECT_EQ(PsnAdd(0, -1), 0xffffffu);
  EXPECT_EQ(PsnAdd(0x123456, int64_t{1} << 24), 0x123456u);
  EXPECT_EQ(PsnAdd(0x123456, -(int64_t{1} << 40)), 0x123456u);
  EXPECT_EQ(PsnAdd(0xff000001, 1), 2u) << "high bits are ignored";
}

TEST(PsnTest, DiffIsSignedAndWraps) {
  EXPECT_EQ(PsnDiff(8, 5), 3);
  EXPECT_EQ(PsnDiff(5, 8), -3);
  EXPECT_EQ(PsnDiff(0, 0xffffff), 1);
  EXPECT_EQ(PsnDiff(0xffffff, 0), -1);
  EXPECT_EQ(PsnDiff(0x7fffff, 0), 0x7fffff);
  EXPECT_EQ(PsnDiff(0x800000, 0), -0x800000);
  EXPECT_EQ(PsnDiff(0, 0x800000), -0x800000) << "the middle counts as before";
  EXPECT_EQ(PsnDiff(0xff000001, 1), 0) << "high bits are ignored";
}

TEST(PsnTest, DiffUndoesAdd) {
  for (const uint32_t psn : {0u, 1u, 0x7fffffu, 0x800000u, 0xffffffu}) {
    for (const int32_t delta : {0, 1, -1, 1000, -1000, 0x7fffff, -0x800000}) {
      EXPECT_EQ(PsnDiff(PsnAdd(psn, delta), psn), delta);
    }
  }
  static_assert(PsnDiff(PsnAdd(0xfffff0, 0x20), 0xfffff0) == 0x20);
}

}  // namespace
}  // namespace wire
