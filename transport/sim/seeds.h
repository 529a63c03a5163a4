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

#include <cstdint>
#include <memory>

#include "transport/sim/run.h"

namespace sim {

// Makes the run of a seed.
using MakeRun = std::unique_ptr<Run> (*)(uint64_t seed);
template <typename Service>
std::unique_ptr<Run> Make(uint64_t seed) {
  return std::make_unique<Service>(seed);
}

// Runs `count` seeds from `first` on, prints and returns the sums of their
// statistics. A failed seed fails the test, runs again with a capture, and
// prints the command that replays it, with `arguments`. Stops after three
// failures.
Statistics RunSeeds(MakeRun make, uint64_t first, uint64_t count,
                    const char* arguments = "");

// main() of such a test.
int SeedMain(int argc, char** argv, MakeRun make);

}  // namespace sim

#endif  // TRANSPORT_SIM_SEEDS_H_
