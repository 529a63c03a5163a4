// Seeds of dynamic connections. Checks: dc_run.h. Arguments: seeds.h.
#include <gtest/gtest.h>

#include "transport/sim/dc_run.h"
#include "transport/sim/seeds.h"

namespace sim {
namespace {

constexpr int kBlocks = 40;
constexpr int kSeedsPerBlock = 50;

class DcSeeds : public ::testing::TestWithParam<int> {};

TEST_P(DcSeeds, EachMessageOnceAtItsTarget) {
  Statistics sum =
      RunSeeds(Make<DcRun>, 1 + GetParam() * kSeedsPerBlock, kSeedsPerBlock);
  // One damaged packet in some millions may pass the ICRC (wire/icrc.h).
  EXPECT_LE(sum.at("undetected"), 1u);
  EXPECT_GT(sum.at("connects"), 0u);
  EXPECT_GT(sum.at("evicted"), 0u);
  EXPECT_GT(sum.at("resets"), 0u);
  EXPECT_GT(sum.at("not ready"), 0u);
}
INSTANTIATE_TEST_SUITE_P(Block, DcSeeds, ::testing::Range(0, kBlocks));

}  // namespace
}  // namespace sim

int main(int argc, char** argv) {
  return sim::SeedMain(argc, argv, sim::Make<sim::DcRun>);
}
