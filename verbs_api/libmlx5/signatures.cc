// Block signatures of memory keys: mlx5dv_mkey_check(3),
// mlx5dv_qp_cancel_posted_send_wrs(3).
#include "verbs_api/libmlx5/signatures.h"

#include <cstring>
#include <iterator>

#include "verbs_api/libmlx5/mkey.h"
#include "verbs_api/libmlx5/verbs.h"
#include "verbs_api/libmlx5/work_requests.h"

namespace libmlx5 {
namespace {

using rxe_user::GuardEscape;
using rxe_user::GuardKind;
using rxe_user::SignatureConfig;
using rxe_user::SignatureDomain;

// Reads an enumeration that the program filled in.
template <typename Enum>
uint32_t Raw(const Enum& value) {
  uint32_t number;
  static_assert(sizeof(value) == sizeof(number));
  std::memcpy(&number, &value, sizeof(number));
  return number;
}

bool ReadT10(const mlx5dv_sig_t10dif* from, SignatureDomain* out) {
  constexpr uint16_t kOnes = 0xffff;
  constexpr uint16_t kFlags = MLX5DV_SIG_T10DIF_FLAG_REF_REMAP |
                              MLX5DV_SIG_T10DIF_FLAG_APP_ESCAPE |
                              MLX5DV_SIG_T10DIF_FLAG_APP_REF_ESCAPE;
  if (from == nullptr || (from->bg != 0 && from->bg != kOnes) ||
      (from->flags & ~kFlags) != 0) {
    return false;
  }
  switch (Raw(from->bg_type)) {
    case MLX5DV_SIG_T10DIF_CRC:
      out->guard = GuardKind::kT10Crc;
      break;
    case MLX5DV_SIG_T10DIF_CSUM:
      out->guard = GuardKind::kT10Checksum;
      break;
    default:
      return false;
  }
  const auto has = [&](unsigned flag) { return (from->flags & flag) != 0; };
  out->ones_seed = from->bg == kOnes;
  out->counts_up = has(MLX5DV_SIG_T10DIF_FLAG_REF_REMAP);
  out->escape = has(MLX5DV_SIG_T10DIF_FLAG_APP_REF_ESCAPE)
                    ? GuardEscape::kAppAndRefTag
                : has(MLX5DV_SIG_T10DIF_FLAG_APP_ESCAPE) ? GuardEscape::kAppTag
                                                         : GuardEscape::kNone;
  out->app_tag = from->app_tag;
  out->ref_tag = from->ref_tag;
  return true;
}

bool ReadCrc(const mlx5dv_sig_crc* from, SignatureDomain* out) {
  if (from == nullptr) return false;
  uint64_t ones = UINT32_MAX;
  switch (Raw(from->type)) {
    case MLX5DV_SIG_CRC_TYPE_CRC32:
      out->guard = GuardKind::kCrc32;
      break;
    case MLX5DV_SIG_CRC_TYPE_CRC32C:
      out->guard = GuardKind::kCrc32c;
      break;
    case MLX5DV_SIG_CRC_TYPE_CRC64_XP10:
      out->guard = GuardKind::kCrc64;
      ones = UINT64_MAX;
      break;
    default:
      return false;
  }
  const uint64_t seed = from->seed & ones;
  out->ones_seed = seed == ones;
  return seed == 0 || seed == ones;
}

// `from` is null if there are no signatures.
bool ReadDomain(const mlx5dv_sig_block_domain* from, SignatureDomain* out) {
  if (from == nullptr) return true;
  if (from->comp_mask != 0) return false;
  // In the order of mlx5dv_block_size.
  constexpr uint16_t kSizes[] = {512, 520, 4048, 4096, 4160};
  static_assert(MLX5DV_BLOCK_SIZE_512 == 0 &&
                std::size(kSizes) == MLX5DV_BLOCK_SIZE_4160 + 1);
  const uint32_t size = Raw(from->block_size);
  if (size >= std::size(kSizes)) return false;
  out->block_size = kSizes[size];
  switch (Raw(from->sig_type)) {
    case MLX5DV_SIG_TYPE_T10DIF:
      return ReadT10(from->sig.dif, out);
    case MLX5DV_SIG_TYPE_CRC:
      return ReadCrc(from->sig.crc, out);
  }
  return false;
}

}  // namespace

bool ReadSignature(const mlx5dv_sig_block_attr* from, SignatureConfig* out) {
  if (from == nullptr || from->comp_mask != 0 ||
      (from->mem == nullptr && from->wire == nullptr) ||
      (from->flags & ~uint32_t{MLX5DV_SIG_BLOCK_ATTR_FLAG_COPY_MASK}) != 0 ||
      !ReadDomain(from->mem, &out->memory) ||
      !ReadDomain(from->wire, &out->wire)) {
    return false;
  }
  out->check_mask = from->check_mask;
  if ((from->flags & MLX5DV_SIG_BLOCK_ATTR_FLAG_COPY_MASK) == 0) {
    out->copy_mask = rxe_user::UsualCopyMask(out->memory, out->wire);
    return true;
  }
  out->copy_mask = from->copy_mask;
  return rxe_user::HaveSameStructure(out->memory, out->wire);
}

MLX5_EXPORT int _mlx5dv_mkey_check(mlx5dv_mkey* mkey, mlx5dv_mkey_err* out,
                                   size_t size) {
  verbs_api::Mlx5Interface* const verbs = Verbs();
  if (verbs == nullptr) return Refuse(EOPNOTSUPP);
  if (out == nullptr || size < sizeof(*out)) return Refuse(EINVAL);
  verbs_api::MkeyError error;
  if (const int failure = verbs->CheckMkey(Numbers(mkey), &error)) {
    return Refuse(failure);
  }
  using Kind = verbs_api::MkeyError::Kind;
  switch (error.kind) {
    case Kind::kNone:
      out->err_type = MLX5DV_MKEY_NO_ERR;
      break;
    case Kind::kGuard:
      out->err_type = MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD;
      break;
    case Kind::kAppTag:
      out->err_type = MLX5DV_MKEY_SIG_BLOCK_BAD_APPTAG;
      break;
    case Kind::kRefTag:
      out->err_type = MLX5DV_MKEY_SIG_BLOCK_BAD_REFTAG;
      break;
  }
  out->err.sig = {error.actual, error.expected, error.offset};
  return 0;
}

// Failures are negative errno values.
MLX5_EXPORT int mlx5dv_qp_cancel_posted_send_wrs(mlx5dv_qp_ex* qp,
                                                 uint64_t wr_id) {
  verbs_api::Mlx5Interface* const verbs = Verbs();
  if (verbs == nullptr) return -Refuse(EOPNOTSUPP);
  if (qp == nullptr) return -Refuse(EINVAL);
  int count = 0;
  const int error = verbs->CancelSends(WorkRequests::QpOf(qp), wr_id, &count);
  return error == 0 ? count : -Refuse(error);
}

}  // namespace libmlx5
