// Data with block signatures, written independently of SignatureConverter: in
// one pass over all of it.
#ifndef RXE_USER_MEMORY_SIGNATURE_FORM_FOR_TESTS_H_
#define RXE_USER_MEMORY_SIGNATURE_FORM_FOR_TESTS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "rxe_user/memory/signature/guard.h"
#include "rxe_user/memory/signature/signature_config.h"

namespace rxe_user::testing_form {

using Bytes = std::vector<uint8_t>;

inline void Append(uint64_t value, size_t size, bool big_endian, Bytes* out) {
  for (size_t i = 0; i < size; ++i) {
    const size_t byte = big_endian ? size - 1 - i : i;
    out->push_back(static_cast<uint8_t>(value >> (8 * byte)));
  }
}

// `data` with a signature after each complete block.
inline Bytes Form(const SignatureDomain& domain, const Bytes& data) {
  if (domain.guard == GuardKind::kNone) return data;
  Bytes out;
  for (size_t at = 0; at < data.size(); at += domain.block_size) {
    const size_t size = std::min<size_t>(domain.block_size, data.size() - at);
    const auto block = std::span(data).subspan(at, size);
    out.insert(out.end(), block.begin(), block.end());
    if (size < domain.block_size) break;
    const uint64_t guard = FinishGuard(
        domain.guard, ExtendGuard(domain.guard, BeginGuard(domain), block, 0));
    if (IsT10(domain.guard)) {
      const uint64_t number = domain.counts_up ? at / domain.block_size : 0;
      Append(guard, 2, true, &out);
      Append(domain.app_tag, 2, true, &out);
      Append(static_cast<uint32_t>(domain.ref_tag + number), 4, true, &out);
    } else {
      Append(guard, domain.guard == GuardKind::kCrc64 ? 8 : 4, false, &out);
    }
  }
  return out;
}

}  // namespace rxe_user::testing_form

#endif  // RXE_USER_MEMORY_SIGNATURE_FORM_FOR_TESTS_H_
