// Stands in for cordz_functions.cc.o of libabsl_cordz_functions.a; see
// README.md. Cords are never sampled.

#include "absl/strings/internal/cordz_functions.h"

#include <cstdint>
#include <limits>

static_assert(ABSL_LTS_RELEASE_VERSION == 20220623,
              "written for Debian 12's Abseil; compare with the new headers");

namespace absl {
ABSL_NAMESPACE_BEGIN
namespace cord_internal {

// Events until cordz_should_profile_slow() is asked again.
ABSL_CONST_INIT thread_local int64_t cordz_next_sample =
    std::numeric_limits<int64_t>::max();

bool cordz_should_profile_slow() {
  cordz_next_sample = std::numeric_limits<int64_t>::max();
  return false;
}

void cordz_set_next_sample_for_testing(int64_t next_sample) {
  cordz_next_sample = next_sample;
}

int32_t get_cordz_mean_interval() {
  return std::numeric_limits<int32_t>::max();
}

void set_cordz_mean_interval(int32_t) {}

}  // namespace cord_internal
ABSL_NAMESPACE_END
}  // namespace absl
