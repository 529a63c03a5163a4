#include "transport/sim/seeds.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sim {
namespace {

std::string program_name;  // argv[0]

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

std::optional<SeedArguments> SeedArguments::Parse(int argc, char** argv) {
  SeedArguments found;
  for (int i = 1; i < argc; ++i) {
    const char* const argument = argv[i];
    if (std::strncmp(argument, "--seed=", 7) == 0) {
      found.seed = std::strtoull(argument + 7, nullptr, 0);
    } else if (std::strncmp(argument, "--count=", 8) == 0) {
      found.count = std::strtoull(argument + 8, nullptr, 0);
    } else if (std::strncmp(argument, "--pcap=", 7) == 0) {
      found.pcap = argument + 7;
    } else if (std::strcmp(argument, "--trace") == 0) {
      found.trace = true;
    } else if (std::strcmp(argument, "--digest") == 0) {
      found.digest = true;
    } else {
      std::fprintf(stderr, "unknown argument: %s\n", argument);
      return std::nullopt;
    }
  }
  return found;
}

// Sums the statistics of runs.
class Sum {
 public:
  void Add(const Statistics& statistics) {
    ++seeds_;
    for (const auto& [name, value] : statistics) sum_[name] += value;
  }
  const Statistics& Print() const {
    std::string line = absl::StrFormat("%d seeds", seeds_);
    for (const auto& [name, value] : sum_) {
      absl::StrAppend(&line, ", ", name, " ", value);
    }
    std::printf("%s\n", line.c_str());
    return sum_;
  }

 private:
  int seeds_ = 0;
  Statistics sum_;
};

std::string PcapName(uint64_t seed) {
  const char* folder = std::getenv("TEST_UNDECLARED_OUTPUTS_DIR");
  if (folder == nullptr) folder = std::getenv("TEST_TMPDIR");
  if (folder == nullptr) folder = "/tmp";
  const size_t slash = program_name.rfind('/');
  return absl::StrFormat("%s/%s_%d.pcapng", folder,
                         slash == std::string::npos
                             ? program_name
                             : program_name.substr(slash + 1),
                         seed);
}

std::string Replay(uint64_t seed, const char* arguments) {
  const char* target = std::getenv("TEST_TARGET");
  return absl::StrFormat(
      "%s --seed=%d%s --trace --pcap=/tmp/sim_%d.pcapng",
      target != nullptr
          ? absl::StrCat("bazel run --test_sharding_strategy=disabled ", target,
                         " --")
          : program_name,
      seed, arguments, seed);
}

int RunByHand(const SeedArguments& arguments, MakeRun make) {
  Sum sum;
  int failed = 0;
  for (uint64_t i = 0; i < arguments.count && failed < 10; ++i) {
    const uint64_t seed = *arguments.seed + i;
    const std::unique_ptr<Run> run = make(seed);
    if (arguments.count == 1) std::printf("%s\n", run->Describe().c_str());
    if (!arguments.pcap.empty()) run->network().WritePcap(arguments.pcap);
    run->network().set_trace(arguments.trace);
    if (!run->Execute()) {
      ++failed;
      absl::PrintF("seed %d FAILED\n%s", seed, run->checker().ToString());
    }
    if (arguments.digest) {
      absl::PrintF("seed %d packets %d digest %016x\n", seed,
                   run->network().packets(), run->network().digest());
    }
    sum.Add(run->statistics());
  }
  sum.Print();
  return failed == 0 ? 0 : 1;
}

}  // namespace

Statistics RunSeeds(MakeRun make, uint64_t first, uint64_t count,
                    const char* arguments) {
  Sum sum;
  int failed = 0;
  for (uint64_t seed = first; seed < first + count && failed < 3; ++seed) {
    const std::unique_ptr<Run> run = make(seed);
    const bool good = run->Execute();
    sum.Add(run->statistics());
    if (good) continue;
    ++failed;
    const std::string pcap = PcapName(seed);
    const std::unique_ptr<Run> again = make(seed);
    again->network().WritePcap(pcap);
    again->Execute();
    ADD_FAILURE() << "seed " << seed << arguments << "\n"
                  << run->checker().ToString() << "capture: " << pcap
                  << "\nreplay:  " << Replay(seed, arguments) << "\n";
  }
  return sum.Print();
}

int SeedMain(int argc, char** argv, MakeRun make) {
  program_name = argv[0];
  ::testing::InitGoogleTest(&argc, argv);
  const std::optional<SeedArguments> arguments =
      SeedArguments::Parse(argc, argv);
  if (!arguments.has_value()) return 2;
  if (!arguments->seed.has_value()) return RUN_ALL_TESTS();
  return RunByHand(*arguments, make);
}

}  // namespace sim
