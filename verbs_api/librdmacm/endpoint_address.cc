#include "verbs_api/librdmacm/endpoint_address.h"

#include <arpa/inet.h>
#include <endian.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>

#include <cerrno>
#include <cstring>

#include "wire/headers.h"
#include "wire/rdma_cm.h"

namespace librdmacm {
namespace {

// Extracts the port from a service ID. `mask` gives the valid bits.
int FromServiceId(uint64_t service_id, uint64_t mask, EndpointAddress* to) {
  service_id &= mask;
  if ((mask & RDMA_IB_IP_PORT_MASK) != 0) {
    to->port = static_cast<uint16_t>(service_id);
  }
  if (service_id >> 16 == 0) return 0;
  const std::optional<wire::RdmaService> service =
      wire::ParseRdmaServiceId(service_id);
  if (!service.has_value()) return EINVAL;
  to->port_space = service->port_space;
  return 0;
}

int FromIb(const sockaddr_ib& in, EndpointAddress* to) {
  *to = {.family = AF_IB,
         .address = wire::IpAddress::FromGid(in.sib_addr.sib_raw),
         .scope_id = static_cast<uint32_t>(in.sib_scope_id)};
  return FromServiceId(be64toh(in.sib_sid), be64toh(in.sib_sid_mask), to);
}

sockaddr_ib ToIb(const EndpointAddress& from) {
  sockaddr_ib in = {};
  in.sib_family = AF_IB;
  in.sib_pkey = htons(wire::kDefaultPkey);
  std::memcpy(in.sib_addr.sib_raw, from.address.bytes.data(), 16);
  if (from.port_space != 0 || from.port != 0) {
    in.sib_sid = htobe64(wire::RdmaServiceId(from.port_space, from.port));
    in.sib_sid_mask = htobe64(RDMA_IB_IP_PS_MASK | RDMA_IB_IP_PORT_MASK);
  }
  in.sib_scope_id = from.scope_id;
  return in;
}

}  // namespace

ibv_gid GidOf(const wire::IpAddress& address) {
  ibv_gid gid;
  std::memcpy(gid.raw, address.bytes.data(), sizeof(gid.raw));
  return gid;
}

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

EndpointAddress EndpointAddress::OfIp() const {
  EndpointAddress out = *this;
  if (family == AF_IB) out.family = address.is_v4() ? AF_INET : AF_INET6;
  return out;
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
    case AF_IB: {
      sockaddr_ib in;
      std::memcpy(&in, from, sizeof(in));
      return FromIb(in, to);
    }
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
  } else if (from.family == AF_IB) {
    const sockaddr_ib in = ToIb(from);
    std::memcpy(to, &in, sizeof(in));
  }
}

socklen_t SockaddrLength(sa_family_t family) {
  if (family == AF_INET) return sizeof(sockaddr_in);
  if (family == AF_INET6) return sizeof(sockaddr_in6);
  return family == AF_IB ? sizeof(sockaddr_ib) : 0;
}

}  // namespace librdmacm
