// Seeds of unreliable connections. Checks: uc_run.h. Arguments: seeds.h.
#include <gtest/gtest.h>

#include <cstdio>

#include "transport/sim/seeds.h"
#include "transport/sim/uc_run.h"

namespace sim {
namespace {

constexpr int kBlocks = 40;
constexpr int kSeedsPerBlock = 25;

void Print(const UcStatistics& sum) {
  std::printf(
      "%.2f M packets, %d messages; of %d that take a receive, %d arrived; %d "
      "runs without loss, %d packets damaged but accepted, %d answers\n",
      static_cast<double>(sum.packets) / 1e6, static_cast<int>(sum.sent),
      static_cast<int>(sum.consuming), static_cast<int>(sum.received),
      sum.complete, static_cast<int>(sum.undetected),
      static_cast<int>(sum.answers));
}

class UcSeeds : public ::testing::TestWithParam<int> {};

TEST_P(UcSeeds, WholeInOrderOrNotAtAll) {
  UcStatistics sum;
  RunSeeds<UcRun>("uc_sim_test", 1 + GetParam() * kSeedsPerBlock,
                  kSeedsPerBlock, &sum);
  Print(sum);
  // One damaged packet in some millions may pass the ICRC (wire/icrc.h).
  EXPECT_LE(sum.undetected, 1u);
  // The network works as intended: some messages arrive, some do not.
  EXPECT_GT(sum.received, 0u);
  EXPECT_LT(sum.received, sum.consuming);
  EXPECT_GT(sum.answers, 0u);
}
INSTANTIATE_TEST_SUITE_P(Block, UcSeeds, ::testing::Range(0, kBlocks));

}  // namespace
}  // namespace sim

int main(int argc, char** argv) {
  return sim::SeedMain<sim::UcRun>(argc, argv, sim::Print);
}
