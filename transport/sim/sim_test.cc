// Seeds of RC. Checks: seed_run.h. Arguments: seeds.h, and
//
//   sim_test --long    other seeds, some ten minutes
//   sim_test --chaos --seed=N ...    breaks queue pairs and memory
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "transport/sim/seed_run.h"
#include "transport/sim/seeds.h"

namespace sim {
namespace {

// Seeds are grouped in blocks, which shards share.
constexpr int kSeedsPerBlock = 20;

struct Extent {
  uint64_t first_seed;
  int blocks;
  int chaos_blocks;
};
constexpr Extent kCi = {1, 200, 75};
constexpr Extent kLong = {1'000'000, 6000, 2000};
Extent extent = kCi;

void RunBlock(int block, MakeRun make, const char* arguments) {
  const Statistics sum =
      RunSeeds(make, extent.first_seed + block * kSeedsPerBlock, kSeedsPerBlock,
               arguments);
  // One damaged packet in some millions may pass the ICRC (wire/icrc.h).
  EXPECT_LE(sum.at("undetected"), 1u);
}

class Seeds : public ::testing::TestWithParam<int> {};

TEST_P(Seeds, MixedWork) { RunBlock(GetParam(), Make<SeedRun>, ""); }
INSTANTIATE_TEST_SUITE_P(Block, Seeds, ::testing::Range(0, extent.blocks));

class ChaosSeeds : public ::testing::TestWithParam<int> {};

TEST_P(ChaosSeeds, BrokenQueuePairs) {
  RunBlock(GetParam(), Make<ChaosRun>, " --chaos");
}
INSTANTIATE_TEST_SUITE_P(Block, ChaosSeeds,
                         ::testing::Range(0, extent.chaos_blocks));

// Removes `argument` from the command line. True: it was there.
bool Take(const char* argument, int* argc, char** argv) {
  char** const end = std::remove_if(argv, argv + *argc, [=](const char* one) {
    return std::strcmp(one, argument) == 0;
  });
  const bool found = end != argv + *argc;
  *argc = static_cast<int>(end - argv);
  return found;
}

}  // namespace
}  // namespace sim

int main(int argc, char** argv) {
  // Before gtest instantiates the blocks.
  if (sim::Take("--long", &argc, argv)) sim::extent = sim::kLong;
  const bool chaos = sim::Take("--chaos", &argc, argv);
  return sim::SeedMain(
      argc, argv, chaos ? sim::Make<sim::ChaosRun> : sim::Make<sim::SeedRun>);
}
