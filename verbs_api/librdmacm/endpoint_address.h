// An IP address with its port, as sockets name it.
#ifndef VERBS_API_LIBRDMACM_ENDPOINT_ADDRESS_H_
#define VERBS_API_LIBRDMACM_ENDPOINT_ADDRESS_H_

#include <sys/socket.h>

#include <cstdint>

#include "rxe_user/base/local_address.h"
#include "wire/address.h"

namespace librdmacm {

struct EndpointAddress {
  sa_family_t family = AF_UNSPEC;  // AF_INET or AF_INET6
  wire::IpAddress address;         // IPv4 mapped
  uint16_t port = 0;               // host order
  uint32_t scope_id = 0;

  // Of IPv4, mapped; its family is AF_INET then, else AF_INET6.
  static EndpointAddress Of(const rxe_user::LocalAddress& local,
                            uint16_t port = 0);

  bool is_wildcard() const { return address.is_unspecified(); }
  rxe_user::LocalAddress local() const;
};

// 0, EINVAL (null, or a family that is not known) or EAFNOSUPPORT (AF_IB).
int FromSockaddr(const sockaddr* from, EndpointAddress* to);
// Fills all of `*to`, zeros behind the address.
void ToSockaddr(const EndpointAddress& from, sockaddr_storage* to);
// Bytes of a socket address of this family; 0 if it is none of ours.
socklen_t SockaddrLength(sa_family_t family);

}  // namespace librdmacm

#endif  // VERBS_API_LIBRDMACM_ENDPOINT_ADDRESS_H_
