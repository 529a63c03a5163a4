// Seeds of extended reliable connections. Checks: xrc_run.h. Arguments:
// seeds.h.
#include <gtest/gtest.h>

#include <cstdio>

#include "transport/sim/seeds.h"
#include "transport/sim/xrc_run.h"

namespace sim {
namespace {

constexpr int kBlocks = 40;
constexpr int kSeedsPerBlock = 50;

void Print(const XrcStatistics& sum) {
  std::printf(
      "%.2f M packets, %d messages, %d receives, %d times not ready, %d broken "
      "connections, %d packets damaged but accepted\n",
      static_cast<double>(sum.packets) / 1e6, static_cast<int>(sum.messages),
      static_cast<int>(sum.received), static_cast<int>(sum.not_ready),
      static_cast<int>(sum.broken), static_cast<int>(sum.undetected));
}

class XrcSeeds : public ::testing::TestWithParam<int> {};

TEST_P(XrcSeeds, EachMessageOnceAtItsSrq) {
  XrcStatistics sum;
  RunSeeds<XrcRun>("xrc_sim_test", 1 + GetParam() * kSeedsPerBlock,
                   kSeedsPerBlock, &sum);
  Print(sum);
  // One damaged packet in some millions may pass the ICRC (wire/icrc.h).
  EXPECT_LE(sum.undetected, 1u);
  EXPECT_GT(sum.received, 0u);
  EXPECT_GT(sum.not_ready, 0u);
  EXPECT_GT(sum.broken, 0u);
}
INSTANTIATE_TEST_SUITE_P(Block, XrcSeeds, ::testing::Range(0, kBlocks));

}  // namespace
}  // namespace sim

int main(int argc, char** argv) {
  return sim::SeedMain<sim::XrcRun>(argc, argv, sim::Print);
}
