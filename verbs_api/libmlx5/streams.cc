// Streams of a DC initiator. Not built: mlx5dv_create_qp(3) refuses
// MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS.
#include "verbs_api/vendor_stubs/stub.h"

ERRNO(mlx5dv_dci_stream_id_reset)
