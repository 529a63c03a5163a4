// Seeds of extended reliable connections. Checks: xrc_run.h. Arguments:
// seeds.h.
#include <gtest/gtest.h>

#include "transport/sim/seeds.h"
#include "transport/sim/xrc_run.h"

namespace sim {
namespace {

constexpr int kBlocks = 40;
constexpr int kSeedsPerBlock = 50;

class XrcSeeds : public ::testing::TestWithParam<int> {};

TEST_P(XrcSeeds, EachMessageOnceAtItsSrq) {
  Statistics sum =
      RunSeeds(Make<XrcRun>, 1 + GetParam() * kSeedsPerBlock, kSeedsPerBlock);
  // One damaged packet in some millions may pass the ICRC (wire/icrc.h).
  EXPECT_LE(sum.at("undetected"), 1u);
  EXPECT_GT(sum.at("received"), 0u);
  EXPECT_GT(sum.at("not ready"), 0u);
  EXPECT_GT(sum.at("broken"), 0u);
}
INSTANTIATE_TEST_SUITE_P(Block, XrcSeeds, ::testing::Range(0, kBlocks));

}  // namespace
}  // namespace sim

int main(int argc, char** argv) {
  return sim::SeedMain(argc, argv, sim::Make<sim::XrcRun>);
}
