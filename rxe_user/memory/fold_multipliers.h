// By what a CRC's bytes are multiplied to move them on: for guarded_copy.cc.
#ifndef RXE_USER_MEMORY_FOLD_MULTIPLIERS_H_
#define RXE_USER_MEMORY_FOLD_MULTIPLIERS_H_

#include <cstddef>
#include <cstdint>

#include "wire/gf2.h"

namespace rxe_user {

// For moving 16 bytes by `bits`: x^(64 + bits) for the first 8, x^bits for the
// others. In the low half of a word and shifted by one, since products of
// reflected words end one bit low, each counts as x^32 times itself: that is
// taken off.
struct Multipliers {
  explicit constexpr Multipliers(size_t bits)
      : first(uint64_t{wire::gf2::PowerOfX(bits + 32)} << 1),
        second(uint64_t{wire::gf2::PowerOfX(bits - 32)} << 1) {}
  uint64_t first;
  uint64_t second;
};

}  // namespace rxe_user

#endif  // RXE_USER_MEMORY_FOLD_MULTIPLIERS_H_
