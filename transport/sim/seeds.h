// Shared by the simulation tests of each service: blocks of seeds for CI, and
// single seeds.
//
//   X_sim_test                                      all that CI runs
//   X_sim_test --seed=N [--count=M]                 these seeds only
//              [--pcap=FILE] [--trace] [--digest]
//
// --digest prints a line for each seed with a hash of its packets and their
// times, to compare two builds (Network::digest).
#ifndef TRANSPORT_SIM_SEEDS_H_
#define TRANSPORT_SIM_SEEDS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "transport/sim/network.h"

namespace sim {

// Command line arguments, without GoogleTest's.
struct SeedArguments {
  std::optional<uint64_t> seed;
  uint64_t count = 1;
  std::string pcap;
  bool trace = false;
  bool digest = false;

  // Absent for an unknown argument, which is reported on stderr.
  static std::optional<SeedArguments> Parse(int argc, char** argv);
};

// Prints the line of --digest.
void PrintDigest(uint64_t seed, const Network& network);

// Runs `count` seeds from `first` on and sums the statistics. A failed seed
// fails the test and prints the command that replays it with `program`. Stops
// after three failures.
template <typename Run, typename Statistics>
void RunSeeds(const char* program, uint64_t first, int count, Statistics* sum) {
  int failed = 0;
  for (int i = 0; i < count && failed < 3; ++i) {
    const uint64_t seed = first + static_cast<uint64_t>(i);
    Run run(seed);
    if (!run.Execute()) {
      ++failed;
      ADD_FAILURE() << "seed " << seed << "\n"
                    << run.checker().ToString() << "replay: " << program
                    << " --trace --seed=" << seed;
    }
    run.AddTo(sum);
  }
}

// main() of such a test. `print` prints the statistics.
template <typename Run, typename Statistics>
int SeedMain(int argc, char** argv, void (*print)(const Statistics&)) {
  ::testing::InitGoogleTest(&argc, argv);
  const std::optional<SeedArguments> arguments =
      SeedArguments::Parse(argc, argv);
  if (!arguments.has_value()) return 2;
  if (!arguments->seed.has_value()) return RUN_ALL_TESTS();
  Statistics sum;
  bool good = true;
  for (uint64_t i = 0; i < arguments->count; ++i) {
    const uint64_t seed = *arguments->seed + i;
    Run run(seed);
    if (!arguments->pcap.empty()) run.network().WritePcap(arguments->pcap);
    run.network().set_trace(arguments->trace);
    if (!run.Execute()) {
      good = false;
      std::printf("seed %llu FAILED\n%s", static_cast<unsigned long long>(seed),
                  run.checker().ToString().c_str());
    }
    if (arguments->digest) PrintDigest(seed, run.network());
    run.AddTo(&sum);
  }
  print(sum);
  return good ? 0 : 1;
}

}  // namespace sim

#endif  // TRANSPORT_SIM_SEEDS_H_
