// The private data of messages.
#ifndef VERBS_API_LIBRDMACM_PRIVATE_DATA_H_
#define VERBS_API_LIBRDMACM_PRIVATE_DATA_H_

#include <rdma/rdma_cma.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "verbs_api/librdmacm/id.h"

namespace librdmacm {

// Of REQ and SIDR_REQ: the header of the RDMA CM, what rdma_getaddrinfo gave,
// what the application gives, zeros. False if that is too long. `id.mutex` is
// held.
bool FillRequestData(const Id& id, const rdma_conn_param& param,
                     std::span<uint8_t> out);

// Of their answers: what the application gives, zeros. Null is none, whatever
// its length. False if that is too long.
bool FillAnswerData(const void* data, size_t length, std::span<uint8_t> out);

}  // namespace librdmacm

#endif  // VERBS_API_LIBRDMACM_PRIVATE_DATA_H_
