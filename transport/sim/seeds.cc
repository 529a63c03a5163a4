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
    } else if (std::strncmp(argument, "--pcap=", 7) == 0) {
      found.pcap = argument + 7;
    } else if (std::strcmp(argument, "--trace") == 0) {
      found.trace = true;
    } else {
      std::fprintf(stderr, "unknown argument: %s\n", argument);
      return std::nullopt;
    }
  }
  return found;
}

}  // namespace sim
