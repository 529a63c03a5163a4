// Random bytes from fixed seeds, for targets whose steps are short enough that
// random input reaches their states.
#include <random>

#include "tests/fuzz/seeds.h"

namespace fuzz {

std::vector<Bytes> MadeSeeds() {
  constexpr int kSeeds = 100;
  constexpr size_t kBytes = 2000;
  std::vector<Bytes> seeds;
  for (int i = 0; i < kSeeds; ++i) {
    std::mt19937 random(static_cast<uint32_t>(i));
    Bytes& seed = seeds.emplace_back(kBytes);
    for (uint8_t& byte : seed) byte = static_cast<uint8_t>(random());
  }
  return seeds;
}

}  // namespace fuzz
