// Seeds of unreliable datagrams through the simulator. See ud_run.h for what
// is checked.
//
//   ud_sim_test                                      all that CI runs
//   ud_sim_test --seed=N [--pcap=FILE] [--trace]     this seed only
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

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
  int failed = 0;
  for (int i = 0; i < kSeedsPerBlock && failed < 3; ++i) {
    const uint64_t seed = 1 + GetParam() * kSeedsPerBlock + i;
    UdRun run(seed);
    if (!run.Execute()) {
      ++failed;
      ADD_FAILURE() << "seed " << seed << "\n"
                    << run.checker().ToString()
                    << "replay: ud_sim_test --trace --seed=" << seed;
    }
    run.AddTo(&sum);
  }
  Print(sum);
  // Nothing is known of who sends, so any IP identification is believed: of
  // 65,536 damaged packets one passes (wire/icrc.h).
  EXPECT_LE(sum.undetected, 1 + sum.damaged / 10'000);
  // The network is as it should be: some messages come, some do not.
  EXPECT_GT(sum.received, sum.sent / 4);
  EXPECT_LT(sum.received, sum.sent);
}
INSTANTIATE_TEST_SUITE_P(Block, UdSeeds, ::testing::Range(0, kBlocks));

int RunByHand(uint64_t seed, const std::string& pcap, bool trace) {
  UdRun run(seed);
  if (!pcap.empty()) run.network().WritePcap(pcap);
  run.network().set_trace(trace);
  const bool good = run.Execute();
  if (!good) std::printf("FAILED\n%s", run.checker().ToString().c_str());
  UdStatistics sum;
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
