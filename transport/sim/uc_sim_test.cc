// Seeds of unreliable connections through the simulator. See uc_run.h for what
// is checked.
//
//   uc_sim_test                                      all that CI runs
//   uc_sim_test --seed=N [--pcap=FILE] [--trace]     this seed only
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "transport/sim/uc_run.h"

namespace sim {
namespace {

constexpr int kBlocks = 40;
constexpr int kSeedsPerBlock = 25;

void Print(const UcStatistics& sum) {
  std::printf(
      "%.2f M packets, %d messages; of %d that take a receive, %d arrived; %d "
      "runs without loss, %d packets damaged but accepted\n",
      static_cast<double>(sum.packets) / 1e6, static_cast<int>(sum.sent),
      static_cast<int>(sum.consuming), static_cast<int>(sum.received),
      sum.complete, static_cast<int>(sum.undetected));
}

class UcSeeds : public ::testing::TestWithParam<int> {};

TEST_P(UcSeeds, WholeInOrderOrNotAtAll) {
  UcStatistics sum;
  int failed = 0;
  for (int i = 0; i < kSeedsPerBlock && failed < 3; ++i) {
    const uint64_t seed = 1 + GetParam() * kSeedsPerBlock + i;
    UcRun run(seed);
    if (!run.Execute()) {
      ++failed;
      ADD_FAILURE() << "seed " << seed << "\n"
                    << run.checker().ToString()
                    << "replay: uc_sim_test --trace --seed=" << seed;
    }
    run.AddTo(&sum);
  }
  Print(sum);
  // One damaged packet in some millions may pass the ICRC (wire/icrc.h).
  EXPECT_LE(sum.undetected, 1u);
  // The network is as it should be: some messages come, some do not.
  EXPECT_GT(sum.received, 0u);
  EXPECT_LT(sum.received, sum.consuming);
}
INSTANTIATE_TEST_SUITE_P(Block, UcSeeds, ::testing::Range(0, kBlocks));

int RunByHand(uint64_t seed, const std::string& pcap, bool trace) {
  UcRun run(seed);
  if (!pcap.empty()) run.network().WritePcap(pcap);
  run.network().set_trace(trace);
  const bool good = run.Execute();
  if (!good) std::printf("FAILED\n%s", run.checker().ToString().c_str());
  UcStatistics sum;
  run.AddTo(&sum);
  Print(sum);
  return good ? 0 : 1;
}

}  // namespace
}  // namespace sim

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  uint64_t seed = 0;
  bool by_hand = false;
  bool trace = false;
  std::string pcap;
  for (int i = 1; i < argc; ++i) {
    const char* const argument = argv[i];
    if (std::strncmp(argument, "--seed=", 7) == 0) {
      seed = std::strtoull(argument + 7, nullptr, 0);
      by_hand = true;
    } else if (std::strncmp(argument, "--pcap=", 7) == 0) {
      pcap = argument + 7;
    } else if (std::strcmp(argument, "--trace") == 0) {
      trace = true;
    } else {
      std::fprintf(stderr, "unknown argument: %s\n", argument);
      return 2;
    }
  }
  if (by_hand) return sim::RunByHand(seed, pcap, trace);
  return RUN_ALL_TESTS();
}
