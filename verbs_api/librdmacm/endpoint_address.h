// An IP address with its port, as sockets name it. Of family AF_IB it is a GID
// with a service ID of the RDMA IP CM service; on RoCE a GID is an IP address.
#ifndef VERBS_API_LIBRDMACM_ENDPOINT_ADDRESS_H_
#define VERBS_API_LIBRDMACM_ENDPOINT_ADDRESS_H_

#include <infiniband/ib.h>
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
  uint8_t port_space = 0;  // of AF_IB, as in service IDs; 0: of any

  // Of IPv4, mapped; its family is AF_INET then, else AF_INET6.
  static EndpointAddress Of(const rxe_user::LocalAddress& local,
                            uint16_t port = 0);

  bool is_wildcard() const { return address.is_unspecified(); }
  rxe_user::LocalAddress local() const;
  // The same address as IP sockets have it.
  EndpointAddress OfIp() const;
};

// 0, or EINVAL: null, a family that is not known, or a service ID that names no
// port.
int FromSockaddr(const sockaddr* from, EndpointAddress* to);
// Fills all of `*to`, zeros behind the address.
void ToSockaddr(const EndpointAddress& from, sockaddr_storage* to);
// Bytes of a socket address of this family; 0 if it is none of ours.
socklen_t SockaddrLength(sa_family_t family);

}  // namespace librdmacm

#endif  // VERBS_API_LIBRDMACM_ENDPOINT_ADDRESS_H_
