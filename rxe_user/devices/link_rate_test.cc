#include "rxe_user/devices/link_rate.h"

#include "gtest/gtest.h"

namespace rxe_user {
namespace {

TEST(LinkRateTest, IsTheHighestRateBelow) {
  EXPECT_EQ(LinkRateText(LinkRateOf(400000)), "400 Gb/sec (4X NDR)");
  EXPECT_EQ(LinkRateText(LinkRateOf(250000)), "200 Gb/sec (4X HDR)");
  EXPECT_EQ(LinkRateText(LinkRateOf(100000)), "100 Gb/sec (4X EDR)");
  EXPECT_EQ(LinkRateText(LinkRateOf(56000)), "56 Gb/sec (4X FDR)");
  EXPECT_EQ(LinkRateText(LinkRateOf(40000)), "40 Gb/sec (4X FDR10)");
  EXPECT_EQ(LinkRateText(LinkRateOf(25000)), "25 Gb/sec (1X EDR)");
  EXPECT_EQ(LinkRateText(LinkRateOf(10000)), "10 Gb/sec (1X FDR10)");
  EXPECT_EQ(LinkRateText(LinkRateOf(1000)), "2.5 Gb/sec (1X)");
}

}  // namespace
}  // namespace rxe_user
