// Objects as the card sees them, for programs that write to its queues
// themselves (mlx5dv_init_obj(3)), and objects with properties of mlx5. Not
// supported, since there is no card.
#include "verbs_api/vendor_stubs/stub.h"

OLD_ERRNO(mlx5dv_init_obj, "MLX5_1.0")
ERRNO(mlx5dv_init_obj)
POINTER(mlx5dv_create_wq)
POINTER(mlx5dv_alloc_dm)
POINTER(mlx5dv_dm_map_op_addr)
NO_DEVICE(mlx5dv_get_data_direct_sysfs_path)
POINTER(mlx5dv_reg_dmabuf_mr)
