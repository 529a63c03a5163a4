// Streams of a DC initiator: mlx5dv_dci_stream_id_reset(3).
#include <infiniband/mlx5dv.h>

#include "verbs_api/libmlx5/verbs.h"

namespace libmlx5 {

MLX5_EXPORT int mlx5dv_dci_stream_id_reset(ibv_qp* qp, uint16_t stream) {
  verbs_api::Mlx5Interface* const verbs = Verbs();
  if (verbs == nullptr) return Refuse(EOPNOTSUPP);
  const int error = verbs->ResetStream(qp, stream);
  return error == 0 ? 0 : Refuse(error);
}

}  // namespace libmlx5
