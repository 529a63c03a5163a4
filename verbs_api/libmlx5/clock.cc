// The clock of completions: mlx5dv_get_clock_info(3).
#include <infiniband/mlx5dv.h>

#include <cstdint>

#include "verbs_api/libmlx5/verbs.h"

namespace libmlx5 {

// The clock counts nanoseconds in 64 bits, so mlx5dv_ts_to_ns(3) only has to
// add the difference to the wall clock.
MLX5_EXPORT int mlx5dv_get_clock_info(ibv_context* context,
                                      mlx5dv_clock_info* info) {
  verbs_api::Mlx5Interface* const verbs = VerbsOf(context);
  if (verbs == nullptr) return Refuse(EOPNOTSUPP);
  if (info == nullptr) return Refuse(EINVAL);
  *info = {};
  info->mult = 1;
  info->mask = UINT64_MAX;
  const int error = verbs->ReadClocks(context, &info->last_cycles, &info->nsec);
  return error == 0 ? 0 : Refuse(error);
}

}  // namespace libmlx5
