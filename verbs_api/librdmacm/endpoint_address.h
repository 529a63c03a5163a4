// An address with a port, as socket addresses have it: IPv4, IPv6, or AF_IB,
// which is a GID with a service ID of the RDMA IP CM service. On RoCE a GID is
// an IP address.
#ifndef VERBS_API_LIBRDMACM_ENDPOINT_ADDRESS_H_
#define VERBS_API_LIBRDMACM_ENDPOINT_ADDRESS_H_

#include <infiniband/ib.h>
#include <infiniband/verbs.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>

#include "rxe_user/base/local_address.h"
#include "wire/address.h"

namespace librdmacm {

struct EndpointAddress {
  sa_family_t family = AF_UNSPEC;  // AF_INET, AF_INET6 or AF_IB
  wire::IpAddress address;         // IPv4 mapped
  uint16_t port = 0;               // host order
  uint32_t scope_id = 0;
  uint8_t port_space = 0;  // in AF_IB, as in service IDs; 0: any

  // An IPv4-mapped address becomes AF_INET, any other AF_INET6.
  static EndpointAddress Of(const rxe_user::LocalAddress& local,
                            uint16_t port = 0);

  bool is_wildcard() const { return address.is_unspecified(); }
  rxe_user::LocalAddress local() const;
  // Converts AF_IB to AF_INET or AF_INET6.
  EndpointAddress OfIp() const;
};

ibv_gid GidOf(const wire::IpAddress& address);

// Returns 0, or EINVAL: null, an unknown family, or a service ID that names no
// port.
int FromSockaddr(const sockaddr* from, EndpointAddress* to);
// Fills all of `*to`, with zeros behind the address.
void ToSockaddr(const EndpointAddress& from, sockaddr_storage* to);
// The length of a socket address of this family; 0 if the family is unknown.
socklen_t SockaddrLength(sa_family_t family);

}  // namespace librdmacm

#endif  // VERBS_API_LIBRDMACM_ENDPOINT_ADDRESS_H_
