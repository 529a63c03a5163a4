// Scheduling and pacing of transmission (mlx5dv_sched_node_create(3),
// mlx5dv_pp_alloc(3)), and ports of a bond (mlx5dv_modify_qp_lag_port(3)). Not
// supported: there is no pacing, and one port.
#include "verbs_api/vendor_stubs/stub.h"

POINTER(mlx5dv_pp_alloc)
VOID(mlx5dv_pp_free)
ERRNO(mlx5dv_modify_qp_lag_port)
ERRNO(mlx5dv_query_qp_lag_port)
ERRNO(mlx5dv_modify_qp_sched_elem)
POINTER(mlx5dv_sched_leaf_create)
ERRNO(mlx5dv_sched_leaf_destroy)
ERRNO(mlx5dv_sched_leaf_modify)
POINTER(mlx5dv_sched_node_create)
ERRNO(mlx5dv_sched_node_destroy)
ERRNO(mlx5dv_sched_node_modify)
