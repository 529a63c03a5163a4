// rdma_event_str(3).
#include <rdma/rdma_cma.h>

#include <cstring>

#include "verbs_api/librdmacm/abi.h"
#include "verbs_api/librdmacm/newer.h"

namespace librdmacm {

CM_EXPORT const char* rdma_event_str(rdma_cm_event_type event) {
#define NAME(name) \
  case name:       \
    return #name
  int number;  // may be newer than our header
  std::memcpy(&number, &event, sizeof(number));
  switch (number) {
    NAME(RDMA_CM_EVENT_ADDR_RESOLVED);
    NAME(RDMA_CM_EVENT_ADDR_ERROR);
    NAME(RDMA_CM_EVENT_ROUTE_RESOLVED);
    NAME(RDMA_CM_EVENT_ROUTE_ERROR);
    NAME(RDMA_CM_EVENT_CONNECT_REQUEST);
    NAME(RDMA_CM_EVENT_CONNECT_RESPONSE);
    NAME(RDMA_CM_EVENT_CONNECT_ERROR);
    NAME(RDMA_CM_EVENT_UNREACHABLE);
    NAME(RDMA_CM_EVENT_REJECTED);
    NAME(RDMA_CM_EVENT_ESTABLISHED);
    NAME(RDMA_CM_EVENT_DISCONNECTED);
    NAME(RDMA_CM_EVENT_DEVICE_REMOVAL);
    NAME(RDMA_CM_EVENT_MULTICAST_JOIN);
    NAME(RDMA_CM_EVENT_MULTICAST_ERROR);
    NAME(RDMA_CM_EVENT_ADDR_CHANGE);
    NAME(RDMA_CM_EVENT_TIMEWAIT_EXIT);
#undef NAME
    case kAddrinfoResolved:
      return "RDMA_CM_EVENT_ADDRINFO_RESOLVED";
    case kAddrinfoError:
      return "RDMA_CM_EVENT_ADDRINFO_ERROR";
    case kUserEvent:
      return "RDMA_CM_EVENT_USER";
    case kInternalEvent:
      return "RDMA_CM_EVENT_INTERNAL";
  }
  return "UNKNOWN EVENT";
}

}  // namespace librdmacm
