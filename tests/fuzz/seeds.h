// The first inputs of a fuzz target's test, besides its stored corpus.
#ifndef TESTS_FUZZ_SEEDS_H_
#define TESTS_FUZZ_SEEDS_H_

#include <cstdint>
#include <vector>

namespace fuzz {

using Bytes = std::vector<uint8_t>;

// Generated inputs; may be none.
std::vector<Bytes> MadeSeeds();

}  // namespace fuzz

#endif  // TESTS_FUZZ_SEEDS_H_
