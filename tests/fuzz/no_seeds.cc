#include "tests/fuzz/seeds.h"

namespace fuzz {

std::vector<Bytes> MadeSeeds() { return {}; }

}  // namespace fuzz
