// Multipliers that move the bytes of a CRC forward, for the assembly of
// guarded_copy.cc.
#ifndef RXE_USER_MEMORY_FOLD_MULTIPLIERS_H_
#define RXE_USER_MEMORY_FOLD_MULTIPLIERS_H_

#include <cstddef>
#include <cstdint>

#include "wire/gf2.h"

namespace rxe_user {

// Multipliers to move 16 bytes by `bits`: x^(64 + bits) for the first 8 bytes,
// x^bits for the others. A product of bit-reflected words ends one bit too low,
// so both are shifted by one bit. In the low half of a word a multiplier counts
// as x^32 times itself, so both exponents are 32 less.
struct Multipliers {
  explicit constexpr Multipliers(size_t bits)
      : first(uint64_t{wire::gf2::PowerOfX(bits + 32)} << 1),
        second(uint64_t{wire::gf2::PowerOfX(bits - 32)} << 1) {}
  uint64_t first;
  uint64_t second;
};

}  // namespace rxe_user

#endif  // RXE_USER_MEMORY_FOLD_MULTIPLIERS_H_
