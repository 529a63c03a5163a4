// Guards of data blocks: CRCs and checksums, computed piece by piece.
#ifndef RXE_USER_MEMORY_SIGNATURE_GUARD_H_
#define RXE_USER_MEMORY_SIGNATURE_GUARD_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "rxe_user/memory/signature/signature_config.h"

namespace rxe_user {

// Bytes of a signature: 0, 4 or 8.
size_t SignatureSize(GuardKind kind);

// The state before the first byte of a block.
uint64_t BeginGuard(const SignatureDomain& domain);
// Adds `data`, which begins at byte `position` of the block.
uint64_t ExtendGuard(GuardKind kind, uint64_t state,
                     std::span<const uint8_t> data, size_t position);
// The guard of the bytes added so far.
uint64_t FinishGuard(GuardKind kind, uint64_t state);

}  // namespace rxe_user

#endif  // RXE_USER_MEMORY_SIGNATURE_GUARD_H_
