// Shared by the simulation tests of each service: blocks of seeds for CI, and
// single seeds.
//
//   X_sim_test                                      all that CI runs
//   X_sim_test --seed=N [--pcap=FILE] [--trace]     this seed only
#ifndef TRANSPORT_SIM_SEEDS_H_
#define TRANSPORT_SIM_SEEDS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

namespace sim {

// Command line arguments, without GoogleTest's.
struct SeedArguments {
  std::optional<uint64_t> seed;
  std::string pcap;
  bool trace = false;

  // Absent for an unknown argument, which is reported on stderr.
  static std::optional<SeedArguments> Parse(int argc, char** argv);
};

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
  Run run(*arguments->seed);
  if (!arguments->pcap.empty()) run.network().WritePcap(arguments->pcap);
  run.network().set_trace(arguments->trace);
  const bool good = run.Execute();
  if (!good) std::printf("FAILED\n%s", run.checker().ToString().c_str());
  Statistics sum;
  run.AddTo(&sum);
  print(sum);
  return good ? 0 : 1;
}

}  // namespace sim

#endif  // TRANSPORT_SIM_SEEDS_H_
