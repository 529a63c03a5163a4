// libefa.so.1 for programs that are linked to it.
#include "verbs_api/vendor_stubs/stub.h"

POINTER(efadv_create_driver_qp)
POINTER(efadv_create_qp_ex)
ERRNO(efadv_query_ah)
ERRNO(efadv_query_device)
POINTER(efadv_cq_from_ibv_cq_ex)
POINTER(efadv_create_cq)
ERRNO(efadv_query_mr)
ERRNO(efadv_query_qp_wqs)
ERRNO(efadv_query_cq)
// A depth, or a negative errno value.
EXPORTED int efadv_get_max_rq_depth() { return -EOPNOTSUPP; }
EXPORTED int efadv_get_max_sq_depth() { return -EOPNOTSUPP; }
POINTER(efadv_qp_from_ibv_qp_ex)
POINTER(efadv_create_comp_cntr)
