// Seeds of dynamic connections. Checks: dc_run.h. Arguments: seeds.h.
#include <gtest/gtest.h>

#include <cstdio>

#include "transport/sim/dc_run.h"
#include "transport/sim/seeds.h"

namespace sim {
namespace {

constexpr int kBlocks = 40;
constexpr int kSeedsPerBlock = 50;

void Print(const DcStatistics& sum) {
  std::printf(
      "%.2f M packets, %d messages, %d connects, %d evicted, %d resets, %d "
      "times not ready, %d packets damaged but accepted\n",
      static_cast<double>(sum.packets) / 1e6, static_cast<int>(sum.messages),
      static_cast<int>(sum.connects), static_cast<int>(sum.evicted),
      static_cast<int>(sum.resets), static_cast<int>(sum.not_ready),
      static_cast<int>(sum.undetected));
}

class DcSeeds : public ::testing::TestWithParam<int> {};

TEST_P(DcSeeds, EachMessageOnceAtItsTarget) {
  DcStatistics sum;
  RunSeeds<DcRun>("dc_sim_test", 1 + GetParam() * kSeedsPerBlock,
                  kSeedsPerBlock, &sum);
  Print(sum);
  // One damaged packet in some millions may pass the ICRC (wire/icrc.h).
  EXPECT_LE(sum.undetected, 1u);
  EXPECT_GT(sum.connects, 0u);
  EXPECT_GT(sum.evicted, 0u);
  EXPECT_GT(sum.resets, 0u);
  EXPECT_GT(sum.not_ready, 0u);
}
INSTANTIATE_TEST_SUITE_P(Block, DcSeeds, ::testing::Range(0, kBlocks));

}  // namespace
}  // namespace sim

int main(int argc, char** argv) {
  return sim::SeedMain<sim::DcRun>(argc, argv, sim::Print);
}
