// Seeds of the simulator. Checks: seed_run.h.
//
//   sim_test                               all that CI runs
//   sim_test --long                        other seeds, some ten minutes
//   sim_test --seed=N [--count=M]          these seeds only
//            [--chaos] [--pcap=FILE] [--trace] [--digest]
//
// --digest prints a line for each seed with a hash of its packets and their
// times, to compare two builds (Network::digest).
//
// A seed that fails prints the command that replays it.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "transport/sim/seed_run.h"
#include "transport/sim/seeds.h"

namespace sim {
namespace {

// Seeds are grouped in blocks, which shards share.
constexpr int kSeedsPerBlock = 20;

struct Extent {
  uint64_t first_seed;
  int blocks;
  int chaos_blocks;
};
constexpr Extent kCi = {1, 200, 75};
constexpr Extent kLong = {1'000'000, 6000, 2000};
Extent extent = kCi;

std::string program_name;  // argv[0]
bool print_digests = false;

std::string PcapName(uint64_t seed, bool chaos) {
  const char* folder = std::getenv("TEST_UNDECLARED_OUTPUTS_DIR");
  if (folder == nullptr) folder = std::getenv("TEST_TMPDIR");
  if (folder == nullptr) folder = "/tmp";
  return absl::StrFormat("%s/sim_%s%d.pcapng", folder, chaos ? "chaos_" : "",
                         seed);
}

std::string Replay(uint64_t seed, bool chaos) {
  const char* target = std::getenv("TEST_TARGET");
  return absl::StrFormat(
      "%s --seed=%d%s --trace --pcap=/tmp/sim_%d.pcapng",
      target != nullptr
          ? absl::StrCat("bazel run --test_sharding_strategy=disabled ", target,
                         " --")
          : program_name,
      seed, chaos ? " --chaos" : "", seed);
}

// Runs one seed; repeats a failed one with a capture.
bool RunSeed(uint64_t seed, bool chaos, RunStatistics* sum) {
  RunOptions options;
  options.chaos = chaos;
  SeedRun run(seed, options);
  const bool good = run.Execute();
  const RunStatistics& s = run.statistics();
  sum->events += s.events;
  sum->packets += s.packets;
  sum->bytes += s.bytes;
  sum->requests += s.requests;
  sum->retransmitted += s.retransmitted;
  sum->timeouts += s.timeouts;
  sum->undetected += s.undetected;
  sum->virtual_time += s.virtual_time;
  if (print_digests) PrintDigest(seed, run.network());
  if (good) return true;
  {
    options.pcap = PcapName(seed, chaos);
    SeedRun again(seed, options);
    again.Execute();
  }
  ADD_FAILURE() << "seed " << seed << (chaos ? " (chaos)" : "") << "\n"
                << run.checker().ToString()
                << "capture: " << PcapName(seed, chaos)
                << "\nreplay:  " << Replay(seed, chaos) << "\n";
  return false;
}

void PrintSum(const char* what, uint64_t seeds, const RunStatistics& sum,
              std::chrono::steady_clock::time_point start) {
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  std::printf(
      "%s: %d seeds in %.2f s: %.2f M packets, %.1f MB, %d requests, %d "
      "retransmitted, %d timeouts, %d damaged but accepted, %.1f s virtual\n",
      what, static_cast<int>(seeds), seconds, sum.packets / 1e6,
      sum.bytes / 1e6, static_cast<int>(sum.requests),
      static_cast<int>(sum.retransmitted), static_cast<int>(sum.timeouts),
      static_cast<int>(sum.undetected), sum.virtual_time / 1e9);
}

class Seeds : public ::testing::TestWithParam<int> {};

void RunBlock(int block, bool chaos) {
  const auto start = std::chrono::steady_clock::now();
  RunStatistics sum;
  int failed = 0;
  for (int i = 0; i < kSeedsPerBlock && failed < 3; ++i) {
    const uint64_t seed = extent.first_seed + block * kSeedsPerBlock + i;
    failed += RunSeed(seed, chaos, &sum) ? 0 : 1;
  }
  PrintSum(chaos ? "chaos" : "mixed", kSeedsPerBlock, sum, start);
  // One damaged packet in some millions may pass the ICRC (wire/icrc.h).
  EXPECT_LE(sum.undetected, 1u);
}

TEST_P(Seeds, MixedWork) { RunBlock(GetParam(), false); }
INSTANTIATE_TEST_SUITE_P(Block, Seeds, ::testing::Range(0, extent.blocks));

class ChaosSeeds : public ::testing::TestWithParam<int> {};

TEST_P(ChaosSeeds, BrokenQueuePairs) { RunBlock(GetParam(), true); }
INSTANTIATE_TEST_SUITE_P(Block, ChaosSeeds,
                         ::testing::Range(0, extent.chaos_blocks));

// Runs the seeds of the command line.
int RunByHand(uint64_t seed, uint64_t count, const RunOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  RunStatistics sum;
  int failed = 0;
  if (count == 1) {
    SeedRun run(seed, options);
    std::printf("%s\n", run.scenario().ToString().c_str());
    if (!run.Execute()) {
      std::printf("FAILED\n%s", run.checker().ToString().c_str());
      failed = 1;
    }
    sum = run.statistics();
    if (print_digests) PrintDigest(seed, run.network());
  } else {
    for (uint64_t i = 0; i < count; ++i) {
      if (RunSeed(seed + i, options.chaos, &sum)) continue;
      if (++failed == 10) break;
    }
  }
  PrintSum("by hand", count, sum, start);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace sim

int main(int argc, char** argv) {
  sim::program_name = argv[0];
  // Before gtest instantiates the blocks.
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--long") == 0) sim::extent = sim::kLong;
  }
  ::testing::InitGoogleTest(&argc, argv);
  sim::RunOptions options;
  uint64_t seed = 0;
  uint64_t count = 1;
  bool by_hand = false;
  for (int i = 1; i < argc; ++i) {
    const char* argument = argv[i];
    if (std::strncmp(argument, "--seed=", 7) == 0) {
      seed = std::strtoull(argument + 7, nullptr, 0);
      by_hand = true;
    } else if (std::strncmp(argument, "--count=", 8) == 0) {
      count = std::strtoull(argument + 8, nullptr, 0);
      by_hand = true;
    } else if (std::strncmp(argument, "--pcap=", 7) == 0) {
      options.pcap = argument + 7;
    } else if (std::strcmp(argument, "--trace") == 0) {
      options.trace = true;
    } else if (std::strcmp(argument, "--digest") == 0) {
      sim::print_digests = true;
    } else if (std::strcmp(argument, "--long") == 0) {
    } else if (std::strcmp(argument, "--chaos") == 0) {
      options.chaos = true;
    } else {
      std::fprintf(stderr, "unknown argument: %s\n", argument);
      return 2;
    }
  }
  if (by_hand) return sim::RunByHand(seed, count, options);
  return RUN_ALL_TESTS();
}
