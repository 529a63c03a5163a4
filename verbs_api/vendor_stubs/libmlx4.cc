// libmlx4.so.1 for programs that are linked to it.
#include "verbs_api/vendor_stubs/stub.h"

POINTER(mlx4dv_create_qp)
ERRNO(mlx4dv_init_obj)
ERRNO(mlx4dv_query_device)
ERRNO(mlx4dv_set_context_attr)
