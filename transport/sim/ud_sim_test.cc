// Seeds of unreliable datagrams. Checks: ud_run.h. Arguments: seeds.h.
#include <gtest/gtest.h>

#include <cstdio>

#include "transport/sim/seeds.h"
#include "transport/sim/ud_run.h"

namespace sim {
namespace {

constexpr int kBlocks = 40;
constexpr int kSeedsPerBlock = 25;

void Print(const UdStatistics& sum) {
  std::printf(
      "%.2f M packets, %d messages sent, %d received; %d packets damaged, %d "
      "of them accepted\n",
      static_cast<double>(sum.packets) / 1e6, static_cast<int>(sum.sent),
      static_cast<int>(sum.received), static_cast<int>(sum.damaged),
      static_cast<int>(sum.undetected));
}

class UdSeeds : public ::testing::TestWithParam<int> {};

TEST_P(UdSeeds, WholeOrNotAtAll) {
  UdStatistics sum;
  RunSeeds<UdRun>("ud_sim_test", 1 + GetParam() * kSeedsPerBlock,
                  kSeedsPerBlock, &sum);
  Print(sum);
  // UD senders are not remembered, so any IP identification is accepted: one
  // damaged packet in 65,536 passes (wire/icrc.h).
  EXPECT_LE(sum.undetected, 1 + sum.damaged / 10'000);
  // The network works as intended: some messages arrive, some do not.
  EXPECT_GT(sum.received, sum.sent / 4);
  EXPECT_LT(sum.received, sum.sent);
}
INSTANTIATE_TEST_SUITE_P(Block, UdSeeds, ::testing::Range(0, kBlocks));

}  // namespace
}  // namespace sim

int main(int argc, char** argv) {
  return sim::SeedMain<sim::UdRun>(argc, argv, sim::Print);
}
