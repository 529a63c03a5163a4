// The structures of memory keys under the names that libibverbs uses.
#ifndef VERBS_API_LIBMLX5_MKEY_H_
#define VERBS_API_LIBMLX5_MKEY_H_

#include <infiniband/mlx5dv.h>

#include <cstddef>

#include "verbs_api/libibverbs/mlx5_interface.h"

namespace libmlx5 {

using verbs_api::MkeyNumbers;
using verbs_api::MkeyPiece;

static_assert(sizeof(MkeyNumbers) == sizeof(mlx5dv_mkey) &&
              offsetof(MkeyNumbers, rkey) == offsetof(mlx5dv_mkey, rkey));
static_assert(sizeof(MkeyPiece) == sizeof(mlx5dv_mr_interleaved) &&
              offsetof(MkeyPiece, bytes_count) ==
                  offsetof(mlx5dv_mr_interleaved, bytes_count) &&
              offsetof(MkeyPiece, bytes_skip) ==
                  offsetof(mlx5dv_mr_interleaved, bytes_skip) &&
              offsetof(MkeyPiece, lkey) ==
                  offsetof(mlx5dv_mr_interleaved, lkey));

inline MkeyNumbers* Numbers(mlx5dv_mkey* mkey) {
  return reinterpret_cast<MkeyNumbers*>(mkey);
}
inline const MkeyPiece* Pieces(const mlx5dv_mr_interleaved* pieces) {
  return reinterpret_cast<const MkeyPiece*>(pieces);
}

}  // namespace libmlx5

#endif  // VERBS_API_LIBMLX5_MKEY_H_
