// Which local address leads to a destination, by the host's routes.
#ifndef VERBS_API_LIBRDMACM_SOURCE_ADDRESS_H_
#define VERBS_API_LIBRDMACM_SOURCE_ADDRESS_H_

#include "verbs_api/librdmacm/endpoint_address.h"

namespace librdmacm {

// The source address that a UDP socket would send to `destination` from; none
// is sent. `wanted`: the address that it has to be, unspecified for any. Sets
// `*source`, its port 0. 0 or an errno value: ENETUNREACH without a route,
// EADDRNOTAVAIL if `wanted` is not this host's, ...
int FindSource(const EndpointAddress& destination,
               const EndpointAddress& wanted, EndpointAddress* source);

// As others know the local address (rxe_user/base/public_addresses.h): all that
// ids keep of their sources is of these.
EndpointAddress AsKnown(EndpointAddress local);

// Whether `address` is this host's: 0, or an errno value (EADDRNOTAVAIL).
int CheckLocal(const EndpointAddress& address);

}  // namespace librdmacm

#endif  // VERBS_API_LIBRDMACM_SOURCE_ADDRESS_H_
