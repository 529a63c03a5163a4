// Seeds of unreliable connections. Checks: uc_run.h. Arguments: seeds.h.
#include <gtest/gtest.h>

#include "transport/sim/seeds.h"
#include "transport/sim/uc_run.h"

namespace sim {
namespace {

constexpr int kBlocks = 40;
constexpr int kSeedsPerBlock = 25;

class UcSeeds : public ::testing::TestWithParam<int> {};

TEST_P(UcSeeds, WholeInOrderOrNotAtAll) {
  Statistics sum =
      RunSeeds(Make<UcRun>, 1 + GetParam() * kSeedsPerBlock, kSeedsPerBlock);
  // One damaged packet in some millions may pass the ICRC (wire/icrc.h).
  EXPECT_LE(sum.at("undetected"), 1u);
  // The network works as intended: some messages arrive, some do not.
  EXPECT_GT(sum.at("received"), 0u);
  EXPECT_LT(sum.at("received"), sum.at("consuming"));
  EXPECT_GT(sum.at("answers"), 0u);
}
INSTANTIATE_TEST_SUITE_P(Block, UcSeeds, ::testing::Range(0, kBlocks));

}  // namespace
}  // namespace sim

int main(int argc, char** argv) {
  return sim::SeedMain(argc, argv, sim::Make<sim::UcRun>);
}
