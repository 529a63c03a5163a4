// Connection calls on datagram ids (port spaces UDP and IPOIB): SIDR asks for
// the queue pair of a service (IBA 12.11).
#ifndef VERBS_API_LIBRDMACM_DATAGRAM_H_
#define VERBS_API_LIBRDMACM_DATAGRAM_H_

#include <rdma/rdma_cma.h>

#include <cstdint>

#include "verbs_api/librdmacm/id.h"

namespace librdmacm {

// rdma_connect, rdma_accept, rdma_reject. `id.calls` is held. `param` may be
// null. Return 0 or an errno value.
int ResolveDatagram(Id& id, const rdma_conn_param* param);
int AcceptDatagram(Id& id, const rdma_conn_param* param);
int RejectDatagram(Id& id, const void* private_data, uint8_t length);

}  // namespace librdmacm

#endif  // VERBS_API_LIBRDMACM_DATAGRAM_H_
