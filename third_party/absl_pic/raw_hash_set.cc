// Stands in for raw_hash_set.cc.o of libabsl_raw_hash_set.a; see README.md.

#include "absl/container/internal/raw_hash_set.h"

#include <cstdlib>
#include <cstring>

static_assert(ABSL_LTS_RELEASE_VERSION == 20220623,
              "written for Debian 12's Abseil; compare with the new headers");

namespace absl {
ABSL_NAMESPACE_BEGIN
namespace container_internal {

// What an empty table points to: a sentinel, then empty slots. Never written.
alignas(16) ABSL_CONST_INIT const ctrl_t kEmptyGroup[16] = {
    ctrl_t::kSentinel, ctrl_t::kEmpty, ctrl_t::kEmpty, ctrl_t::kEmpty,
    ctrl_t::kEmpty,    ctrl_t::kEmpty, ctrl_t::kEmpty, ctrl_t::kEmpty,
    ctrl_t::kEmpty,    ctrl_t::kEmpty, ctrl_t::kEmpty, ctrl_t::kEmpty,
    ctrl_t::kEmpty,    ctrl_t::kEmpty, ctrl_t::kEmpty, ctrl_t::kEmpty};

// Only debug builds ask, to keep programs from relying on the order of
// iteration. The original mixes in a thread-local count; the table's address
// and the hash vary enough.
bool ShouldInsertBackwards(size_t hash, const ctrl_t* ctrl) {
  return (H1(hash, ctrl) % 13) > 6;
}

void ConvertDeletedToEmptyAndFullToDeleted(ctrl_t* ctrl, size_t capacity) {
  for (size_t i = 0; i < capacity; ++i) {
    ctrl[i] = IsFull(ctrl[i]) ? ctrl_t::kDeleted : ctrl_t::kEmpty;
  }
  ctrl[capacity] = ctrl_t::kSentinel;
  // The bytes behind the sentinel repeat the first ones, so that a group read
  // near the end wraps round; a small table pads them with empty.
  for (size_t i = 0; i < NumClonedBytes(); ++i) {
    ctrl[capacity + 1 + i] = i < capacity ? ctrl[i] : ctrl_t::kEmpty;
  }
}

void HashTableSizeOverflow() { std::abort(); }

template FindInfo find_first_non_full(const ctrl_t*, size_t, size_t);

}  // namespace container_internal
ABSL_NAMESPACE_END
}  // namespace absl
