#include "transport/sim/seeds.h"

#include <cstdlib>
#include <cstring>

namespace sim {

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

void PrintDigest(uint64_t seed, const Network& network) {
  std::printf("seed %llu packets %llu digest %016llx\n",
              static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(network.packets()),
              static_cast<unsigned long long>(network.digest()));
}

}  // namespace sim
