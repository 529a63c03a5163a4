// Seeds of several connections that share their paths. Checks: path_run.h.
// Arguments: seeds.h.
#include <gtest/gtest.h>

#include <cstdio>

#include "transport/sim/path_run.h"
#include "transport/sim/seeds.h"

namespace sim {
namespace {

constexpr int kBlocks = 20;
constexpr int kSeedsPerBlock = 5;

void Print(const PathStatistics& sum) {
  std::printf(
      "%.2f M packets, %.3f M messages, %.3f M notifications, %d connections "
      "ended\n",
      static_cast<double>(sum.packets) / 1e6,
      static_cast<double>(sum.completed) / 1e6,
      static_cast<double>(sum.notified) / 1e6, static_cast<int>(sum.broken));
}

class PathSeeds : public ::testing::TestWithParam<int> {};

TEST_P(PathSeeds, NobodyIsStuckAndNothingStaysInFlight) {
  PathStatistics sum;
  RunSeeds<PathRun>("path_sim_test", 1 + GetParam() * kSeedsPerBlock,
                    kSeedsPerBlock, &sum);
  Print(sum);
  // Some faults have occurred.
  EXPECT_GT(sum.notified, 0u);
  EXPECT_GT(sum.broken, 0u);
}
INSTANTIATE_TEST_SUITE_P(Block, PathSeeds, ::testing::Range(0, kBlocks));

}  // namespace
}  // namespace sim

int main(int argc, char** argv) {
  return sim::SeedMain<sim::PathRun>(argc, argv, sim::Print);
}
