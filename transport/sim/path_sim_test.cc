// Seeds of several connections that share their paths. Checks: path_run.h.
// Arguments: seeds.h.
#include <gtest/gtest.h>

#include "transport/sim/path_run.h"
#include "transport/sim/seeds.h"

namespace sim {
namespace {

constexpr int kBlocks = 20;
constexpr int kSeedsPerBlock = 5;

class PathSeeds : public ::testing::TestWithParam<int> {};

TEST_P(PathSeeds, NoQueuePairIsStuckAndNothingStaysInFlight) {
  Statistics sum =
      RunSeeds(Make<PathRun>, 1 + GetParam() * kSeedsPerBlock, kSeedsPerBlock);
  // Some faults have occurred.
  EXPECT_GT(sum.at("notified"), 0u);
  EXPECT_GT(sum.at("broken"), 0u);
}
INSTANTIATE_TEST_SUITE_P(Block, PathSeeds, ::testing::Range(0, kBlocks));

}  // namespace
}  // namespace sim

int main(int argc, char** argv) {
  return sim::SeedMain(argc, argv, sim::Make<sim::PathRun>);
}
