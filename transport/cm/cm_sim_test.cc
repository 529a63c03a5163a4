// Seeds of connection management over a simulated network. The checks are in
// cm_sim.h.
//
//   cm_sim_test                                 all that CI runs
//   cm_sim_test --seed=N [--count=M] [--trace]  these seeds only
#include "transport/cm/cm_sim.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace transport::cm {
namespace {

constexpr int kBlocks = 20;
constexpr int kSeedsPerBlock = 150;

void Print(const SimStatistics& s) {
  const auto number = [](uint64_t n) { return static_cast<long long>(n); };
  std::printf(
      "%lld MADs, %lld lost, %lld sent again; %lld connects, %lld established, "
      "%lld rejected, %lld unreachable, %lld disconnected, %lld resolved; %lld "
      "hosts died, %lld stale, %lld ends that could not know\n",
      number(s.mads), number(s.lost), number(s.retransmitted),
      number(s.connects), number(s.established), number(s.rejected),
      number(s.unreachable), number(s.disconnected), number(s.resolved),
      number(s.deaths), number(s.stale), number(s.disagreed));
}

// Runs seeds until three have failed.
int RunSeeds(uint64_t first, uint64_t count, SimStatistics* sum) {
  int failed = 0;
  for (uint64_t seed = first; seed < first + count && failed < 3; ++seed) {
    CmSim run(seed);
    if (!run.Run()) {
      ++failed;
      ADD_FAILURE() << "seed " << seed << ": " << run.failure()
                    << "\nreplay: cm_sim_test --trace --seed=" << seed;
    }
    run.AddTo(sum);
  }
  return failed;
}

class CmSeeds : public testing::TestWithParam<int> {};

TEST_P(CmSeeds, BothEndsAgreeAndNothingIsLeft) {
  SimStatistics sum;
  RunSeeds(1 + GetParam() * kSeedsPerBlock, kSeedsPerBlock, &sum);
  Print(sum);
  // The seeds cover every outcome.
  EXPECT_GT(sum.established, sum.connects / 4);
  EXPECT_GT(sum.rejected, 0u);
  EXPECT_GT(sum.unreachable, 0u);
  EXPECT_GT(sum.disconnected, 0u);
  EXPECT_GT(sum.resolved, 0u);
  EXPECT_GT(sum.deaths, 0u);
  EXPECT_GT(sum.retransmitted, 0u);
}
INSTANTIATE_TEST_SUITE_P(Block, CmSeeds, testing::Range(0, kBlocks));

int RunByHand(uint64_t seed, uint64_t count, bool trace) {
  SimStatistics sum;
  int failed = 0;
  for (uint64_t i = 0; i < count && failed < 10; ++i) {
    CmSim run(seed + i, trace);
    if (!run.Run()) {
      ++failed;
      std::printf("FAILED seed %lld: %s\n", static_cast<long long>(seed + i),
                  run.failure().c_str());
    }
    run.AddTo(&sum);
  }
  Print(sum);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace transport::cm

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  uint64_t seed = 0;
  uint64_t count = 1;
  bool by_hand = false;
  bool trace = false;
  for (int i = 1; i < argc; ++i) {
    const char* const argument = argv[i];
    if (std::strncmp(argument, "--seed=", 7) == 0) {
      seed = std::strtoull(argument + 7, nullptr, 0);
      by_hand = true;
    } else if (std::strncmp(argument, "--count=", 8) == 0) {
      count = std::strtoull(argument + 8, nullptr, 0);
    } else if (std::strcmp(argument, "--trace") == 0) {
      trace = true;
    } else {
      std::fprintf(stderr, "unknown argument: %s\n", argument);
      return 2;
    }
  }
  if (by_hand) return transport::cm::RunByHand(seed, count, trace);
  return RUN_ALL_TESTS();
}
