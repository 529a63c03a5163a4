// Reads the signatures that a program configures
// (mlx5dv_wr_set_mkey_sig_block(3)).
#ifndef VERBS_API_LIBMLX5_SIGNATURES_H_
#define VERBS_API_LIBMLX5_SIGNATURES_H_

#include <infiniband/mlx5dv.h>

#include "rxe_user/memory/signature/signature_config.h"

namespace libmlx5 {

// `out` must be newly constructed. False: the manual page does not permit it.
bool ReadSignature(const mlx5dv_sig_block_attr* from,
                   rxe_user::SignatureConfig* out);

}  // namespace libmlx5

#endif  // VERBS_API_LIBMLX5_SIGNATURES_H_
