// The private data of CM messages.
#ifndef VERBS_API_LIBRDMACM_PRIVATE_DATA_H_
#define VERBS_API_LIBRDMACM_PRIVATE_DATA_H_

#include <rdma/rdma_cma.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "verbs_api/librdmacm/id.h"

namespace librdmacm {

// Private data of REQ and SIDR_REQ: the header of the RDMA CM, the data from
// rdma_getaddrinfo, the application's data, zeros. Returns false if that is too
// long. `id.mutex` is held.
bool FillRequestData(const Id& id, const rdma_conn_param& param,
                     std::span<uint8_t> out);

// Private data of replies: the application's data, then zeros. Null means none,
// whatever the length. Returns false if that is too long.
bool FillAnswerData(const void* data, size_t length, std::span<uint8_t> out);

}  // namespace librdmacm

#endif  // VERBS_API_LIBRDMACM_PRIVATE_DATA_H_
