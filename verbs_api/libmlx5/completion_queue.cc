// Completion queues of mlx5dv: mlx5dv_create_cq(3), and the clock:
// mlx5dv_get_clock_info(3). Not built: ibv_create_cq_ex(3) has neither CQE
// sizes nor compression, and its time stamps are nanoseconds.
#include "verbs_api/vendor_stubs/stub.h"

POINTER(mlx5dv_create_cq)
ERRNO(mlx5dv_get_clock_info)
