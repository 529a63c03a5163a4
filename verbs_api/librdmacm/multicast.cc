// rdma_join_multicast(3), which devices do not have yet.
#include <rdma/rdma_cma.h>

#include "verbs_api/librdmacm/id.h"

namespace librdmacm {

CM_EXPORT int rdma_join_multicast(rdma_cm_id* id, sockaddr*, void*) {
  return IdCall(id, [](Id&) { return EOPNOTSUPP; });
}

CM_EXPORT int rdma_join_multicast_ex(rdma_cm_id* id, rdma_cm_join_mc_attr_ex*,
                                     void*) {
  return IdCall(id, [](Id&) { return EOPNOTSUPP; });
}

// Nothing has been joined.
CM_EXPORT int rdma_leave_multicast(rdma_cm_id* id, sockaddr*) {
  return IdCall(id, [](Id&) { return EADDRNOTAVAIL; });
}

}  // namespace librdmacm
