// Doorbell pages (mlx5dv_alloc_var(3)) and cards driven through VFIO
// (mlx5dv_get_vfio_device_list(3)).
#include "verbs_api/vendor_stubs/stub.h"

POINTER(mlx5dv_alloc_var)
VOID(mlx5dv_free_var)
POINTER(mlx5dv_get_vfio_device_list)
ERRNO(mlx5dv_vfio_get_events_fd)
ERRNO(mlx5dv_vfio_process_events)
ERRNO(mlx5dv_var_export)
POINTER(mlx5dv_var_import)
VOID(mlx5dv_var_unimport)
