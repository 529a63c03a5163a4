// What mlx5dv_query_device(3) reports, and other functions enforce.
#ifndef VERBS_API_LIBMLX5_CAPABILITIES_H_
#define VERBS_API_LIBMLX5_CAPABILITIES_H_

#include <infiniband/mlx5dv.h>

#include <cstdint>

namespace libmlx5 {

// enum mlx5dv_cqe_comp_res_format.
inline constexpr uint32_t kCompressionFormats =
    MLX5DV_CQE_RES_FORMAT_HASH | MLX5DV_CQE_RES_FORMAT_CSUM |
    MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX;
// The number of completions that are compressed into one: 1, so none are.
inline constexpr uint32_t kMaxCompressed = 1;

}  // namespace libmlx5

#endif  // VERBS_API_LIBMLX5_CAPABILITIES_H_
