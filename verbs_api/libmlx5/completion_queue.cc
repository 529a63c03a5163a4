// Completion queues: mlx5dv_create_cq(3).
//
// On a card, completions have a size, may be padded, and may be compressed, all
// of which a program sees if it reads the card's queue itself. Here programs
// read completions only by ibv_poll_cq(3) and ibv_start_poll(3), so the
// attributes are checked but have no effect.
#include <infiniband/mlx5dv.h>

#include <bit>
#include <cstdint>
#include <cstdlib>

#include "verbs_api/libmlx5/capabilities.h"
#include "verbs_api/libmlx5/verbs.h"

namespace libmlx5 {
namespace {

constexpr uint64_t kKnownMask = MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE |
                                MLX5DV_CQ_INIT_ATTR_MASK_FLAGS |
                                MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE;
// Bytes of a completion, if neither the program nor the variable sets them.
constexpr int kDefaultSize = 64;
constexpr int kLargeSize = 128;
constexpr const char* kSizeVariable = "MLX5_CQE_SIZE";

bool IsValid(const mlx5dv_cq_init_attr& attr) {
  if ((attr.comp_mask & ~kKnownMask) != 0) return false;
  const auto has = [&](uint64_t bit) { return (attr.comp_mask & bit) != 0; };
  int size = kDefaultSize;
  if (has(MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE)) {
    size = attr.cqe_size;
  } else if (const char* const wanted = std::getenv(kSizeVariable)) {
    size = std::atoi(wanted);
  }
  if (size != kDefaultSize && size != kLargeSize) return false;
  if (has(MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE) &&
      (!std::has_single_bit(attr.cqe_comp_res_format) ||
       (attr.cqe_comp_res_format & kCompressionFormats) == 0)) {
    return false;
  }
  const uint32_t flags = has(MLX5DV_CQ_INIT_ATTR_MASK_FLAGS) ? attr.flags : 0;
  return flags == 0 ||
         (flags == MLX5DV_CQ_INIT_ATTR_FLAGS_CQE_PAD && size == kLargeSize);
}

}  // namespace

MLX5_EXPORT ibv_cq_ex* mlx5dv_create_cq(ibv_context* context,
                                        ibv_cq_init_attr_ex* attr,
                                        mlx5dv_cq_init_attr* mlx5) {
  verbs_api::Mlx5Interface* const verbs = VerbsOf(context);
  if (verbs == nullptr) return Fail(EOPNOTSUPP);
  if (!IsValid(mlx5 != nullptr ? *mlx5 : mlx5dv_cq_init_attr{})) {
    return Fail(EINVAL);
  }
  return verbs->CreateCq(context, attr);
}

}  // namespace libmlx5
