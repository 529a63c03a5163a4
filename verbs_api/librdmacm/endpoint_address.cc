#include "verbs_api/librdmacm/endpoint_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>

namespace librdmacm {
namespace {

// Of InfiniBand addresses (AF_IB of newer kernels), which RoCE does not need.
constexpr sa_family_t kAfIb = 27;

}  // namespace

EndpointAddress EndpointAddress::Of(const rxe_user::LocalAddress& local,
                                    uint16_t port) {
  EndpointAddress out;
  out.family = local.address.is_v4() ? AF_INET : AF_INET6;
  out.address = local.address;
  out.port = port;
  out.scope_id = local.scope_id;
  return out;
}

rxe_user::LocalAddress EndpointAddress::local() const {
  return rxe_user::OnInterface(address, scope_id);
}

int FromSockaddr(const sockaddr* from, EndpointAddress* to) {
  if (from == nullptr) return EINVAL;
  switch (from->sa_family) {
    case AF_INET: {
      sockaddr_in in;
      std::memcpy(&in, from, sizeof(in));
      *to = {.family = AF_INET,
             .address = wire::IpAddress::FromV4(in.sin_addr.s_addr),
             .port = ntohs(in.sin_port)};
      return 0;
    }
    case AF_INET6: {
      sockaddr_in6 in;
      std::memcpy(&in, from, sizeof(in));
      *to = {.family = AF_INET6,
             .address = wire::IpAddress::FromGid(in.sin6_addr.s6_addr),
             .port = ntohs(in.sin6_port),
             .scope_id = in.sin6_scope_id};
      return 0;
    }
    case kAfIb:
      return EAFNOSUPPORT;
    default:
      return EINVAL;
  }
}

void ToSockaddr(const EndpointAddress& from, sockaddr_storage* to) {
  std::memset(to, 0, sizeof(*to));
  if (from.family == AF_INET) {
    sockaddr_in in = {};
    in.sin_family = AF_INET;
    in.sin_port = htons(from.port);
    in.sin_addr.s_addr = from.address.v4_be();
    std::memcpy(to, &in, sizeof(in));
  } else if (from.family == AF_INET6) {
    sockaddr_in6 in = {};
    in.sin6_family = AF_INET6;
    in.sin6_port = htons(from.port);
    in.sin6_scope_id = from.scope_id;
    std::memcpy(in.sin6_addr.s6_addr, from.address.bytes.data(), 16);
    std::memcpy(to, &in, sizeof(in));
  }
}

socklen_t SockaddrLength(sa_family_t family) {
  if (family == AF_INET) return sizeof(sockaddr_in);
  return family == AF_INET6 ? sizeof(sockaddr_in6) : 0;
}

}  // namespace librdmacm
