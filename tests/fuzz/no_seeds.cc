// For fuzz targets whose stored corpus suffices: no generated seeds.
#include "tests/fuzz/seeds.h"

namespace fuzz {

std::vector<Bytes> MadeSeeds() { return {}; }

}  // namespace fuzz
