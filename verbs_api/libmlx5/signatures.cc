// Block signatures of memory keys: mlx5dv_mkey_check(3),
// mlx5dv_qp_cancel_posted_send_wrs(3). Not built: mlx5dv_create_mkey(3) refuses
// keys with signatures.
#include "verbs_api/vendor_stubs/stub.h"

ERRNO(_mlx5dv_mkey_check)
// Its failures are negative errno values.
EXPORTED int mlx5dv_qp_cancel_posted_send_wrs() { return -EOPNOTSUPP; }
