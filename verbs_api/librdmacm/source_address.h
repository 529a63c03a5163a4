// The local address for a destination, by the host's routes.
#ifndef VERBS_API_LIBRDMACM_SOURCE_ADDRESS_H_
#define VERBS_API_LIBRDMACM_SOURCE_ADDRESS_H_

#include "verbs_api/librdmacm/endpoint_address.h"

namespace librdmacm {

// Finds the source address from which a UDP socket would send to `destination`.
// Sends nothing. `wanted`: the required address, or unspecified for any. Sets
// `*source`, with port 0. Returns 0 or an errno value: ENETUNREACH without a
// route, EADDRNOTAVAIL if `wanted` is not this host's, ...
int FindSource(const EndpointAddress& destination,
               const EndpointAddress& wanted, EndpointAddress* source);

// The public address of a local address (rxe_user/base/public_addresses.h). Ids
// only store public source addresses.
EndpointAddress AsKnown(EndpointAddress local);

// Returns 0 if `address` is this host's, or an errno value (EADDRNOTAVAIL).
int CheckLocal(const EndpointAddress& address);

}  // namespace librdmacm

#endif  // VERBS_API_LIBRDMACM_SOURCE_ADDRESS_H_
