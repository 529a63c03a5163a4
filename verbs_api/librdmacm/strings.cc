// rdma_event_str(3).
#include <rdma/rdma_cma.h>

#include <cstring>
#include <iterator>

#include "verbs_api/librdmacm/abi.h"
#include "verbs_api/librdmacm/newer.h"

namespace librdmacm {

namespace {

constexpr const char* kNames[] = {"RDMA_CM_EVENT_ADDR_RESOLVED",
                                  "RDMA_CM_EVENT_ADDR_ERROR",
                                  "RDMA_CM_EVENT_ROUTE_RESOLVED",
                                  "RDMA_CM_EVENT_ROUTE_ERROR",
                                  "RDMA_CM_EVENT_CONNECT_REQUEST",
                                  "RDMA_CM_EVENT_CONNECT_RESPONSE",
                                  "RDMA_CM_EVENT_CONNECT_ERROR",
                                  "RDMA_CM_EVENT_UNREACHABLE",
                                  "RDMA_CM_EVENT_REJECTED",
                                  "RDMA_CM_EVENT_ESTABLISHED",
                                  "RDMA_CM_EVENT_DISCONNECTED",
                                  "RDMA_CM_EVENT_DEVICE_REMOVAL",
                                  "RDMA_CM_EVENT_MULTICAST_JOIN",
                                  "RDMA_CM_EVENT_MULTICAST_ERROR",
                                  "RDMA_CM_EVENT_ADDR_CHANGE",
                                  "RDMA_CM_EVENT_TIMEWAIT_EXIT",
                                  "RDMA_CM_EVENT_ADDRINFO_RESOLVED",
                                  "RDMA_CM_EVENT_ADDRINFO_ERROR",
                                  "RDMA_CM_EVENT_USER",
                                  "RDMA_CM_EVENT_INTERNAL"};
static_assert(RDMA_CM_EVENT_ADDR_RESOLVED == 0 &&
              RDMA_CM_EVENT_TIMEWAIT_EXIT + 1 == kAddrinfoResolved &&
              std::size(kNames) == kInternalEvent + 1);

}  // namespace

CM_EXPORT const char* rdma_event_str(rdma_cm_event_type event) {
  unsigned number;  // may be newer than our header
  std::memcpy(&number, &event, sizeof(number));
  return number < std::size(kNames) ? kNames[number] : "UNKNOWN EVENT";
}

}  // namespace librdmacm
