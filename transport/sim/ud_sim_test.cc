// Seeds of unreliable datagrams. Checks: ud_run.h. Arguments: seeds.h.
#include <gtest/gtest.h>

#include "transport/sim/seeds.h"
#include "transport/sim/ud_run.h"

namespace sim {
namespace {

constexpr int kBlocks = 40;
constexpr int kSeedsPerBlock = 25;

class UdSeeds : public ::testing::TestWithParam<int> {};

TEST_P(UdSeeds, WholeOrNotAtAll) {
  Statistics sum =
      RunSeeds(Make<UdRun>, 1 + GetParam() * kSeedsPerBlock, kSeedsPerBlock);
  // UD senders are not remembered, so any IP identification is accepted: one
  // damaged packet in 65,536 passes (wire/icrc.h).
  EXPECT_LE(sum.at("undetected"), 1 + sum.at("damaged") / 10'000);
  // The network works as intended: some messages arrive, some do not.
  EXPECT_GT(sum.at("received"), sum.at("sent") / 4);
  EXPECT_LT(sum.at("received"), sum.at("sent"));
}
INSTANTIATE_TEST_SUITE_P(Block, UdSeeds, ::testing::Range(0, kBlocks));

}  // namespace
}  // namespace sim

int main(int argc, char** argv) {
  return sim::SeedMain(argc, argv, sim::Make<sim::UdRun>);
}
