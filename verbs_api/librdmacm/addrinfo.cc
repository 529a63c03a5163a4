// rdma_getaddrinfo(3): getaddrinfo(3) plus the fields that RDMA needs.
#include "verbs_api/librdmacm/addrinfo.h"

#include <infiniband/ib.h>
#include <netdb.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "verbs_api/librdmacm/abi.h"
#include "verbs_api/librdmacm/endpoint_address.h"
#include "verbs_api/librdmacm/newer.h"

namespace librdmacm {
namespace {

// Allocates with malloc, like getaddrinfo, because rdma_freeaddrinfo frees it.
template <typename T, typename Length>
bool Copy(const T* from, Length length, T** to, Length* to_length) {
  if (from == nullptr || length == 0) return true;
  *to = static_cast<T*>(std::malloc(length));
  if (*to == nullptr) return false;
  std::memcpy(*to, from, length);
  *to_length = length;
  return true;
}

bool CopyString(const char* from, char** to) {
  if (from != nullptr) *to = strdup(from);
  return from == nullptr || *to != nullptr;
}

// Fills in port space and queue pair type; each implies the other. Returns 0 or
// an EAI_ code.
int SetTypes(const rdma_addrinfo& hints, rdma_addrinfo* info) {
  const int type = hints.ai_qp_type;
  info->ai_port_space = hints.ai_port_space != 0 ? hints.ai_port_space
                        : type == IBV_QPT_UD     ? RDMA_PS_UDP
                                                 : RDMA_PS_TCP;
  const bool datagrams = info->ai_port_space == RDMA_PS_UDP ||
                         info->ai_port_space == RDMA_PS_IPOIB;
  info->ai_qp_type = type != 0 ? type : (datagrams ? IBV_QPT_UD : IBV_QPT_RC);
  if (info->ai_port_space == RDMA_PS_IB) return 0;  // of any type
  return datagrams == (info->ai_qp_type == IBV_QPT_UD) ? 0 : EAI_SOCKTYPE;
}

// Whether `node` is a GID and the result an AF_IB address. With AF_IB but
// without both flags a name resolves to IP addresses, as in rdma-core.
bool WantsGids(const rdma_addrinfo& hints) {
  constexpr int kFlags = RAI_FAMILY | RAI_NUMERICHOST;
  return (hints.ai_flags & kFlags) == kFlags && hints.ai_family == AF_IB;
}

// Converts a result of getaddrinfo(3) to the family that the caller wants.
int TakeAddress(const addrinfo& found, bool as_gid, rdma_addrinfo* info) {
  sockaddr_storage storage = {};
  socklen_t length = found.ai_addrlen;
  std::memcpy(&storage, found.ai_addr, length);
  if (as_gid) {
    EndpointAddress address;
    if (FromSockaddr(found.ai_addr, &address) != 0) return EAI_FAMILY;
    address.family = AF_IB;
    address.port_space = static_cast<uint8_t>(info->ai_port_space);
    ToSockaddr(address, &storage);
    length = SockaddrLength(AF_IB);
  }
  info->ai_family = storage.ss_family;
  const auto* const address = reinterpret_cast<const sockaddr*>(&storage);
  const bool copied =
      (info->ai_flags & RAI_PASSIVE) != 0
          ? Copy(address, length, &info->ai_src_addr, &info->ai_src_len)
          : Copy(address, length, &info->ai_dst_addr, &info->ai_dst_len);
  return copied ? 0 : EAI_MEMORY;
}

// Resolves `node` and `service` with the host's resolver.
int ResolveNames(const char* node, const char* service,
                 const rdma_addrinfo& hints, rdma_addrinfo* info) {
  const bool gids = WantsGids(hints);
  addrinfo wanted = {};
  wanted.ai_socktype =
      info->ai_qp_type == IBV_QPT_UD ? SOCK_DGRAM : SOCK_STREAM;
  if ((info->ai_flags & RAI_PASSIVE) != 0) wanted.ai_flags |= AI_PASSIVE;
  if ((hints.ai_flags & RAI_NUMERICHOST) != 0) {
    wanted.ai_flags |= AI_NUMERICHOST;
  }
  if (gids) {
    // A GID is written like an IPv6 address; an IPv4 one may be written as
    // mapped.
    wanted.ai_family = AF_INET6;
  } else if (hints.ai_family != AF_IB) {
    // Whether or not RAI_FAMILY is set, as in rdma-core.
    wanted.ai_family = hints.ai_family;
  }
  addrinfo* raw = nullptr;
  if (const int error = getaddrinfo(node, service, &wanted, &raw)) return error;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> found(raw,
                                                                 &freeaddrinfo);
  return TakeAddress(*found, gids, info);
}

// Copies the hints that the result does not have yet. A route in the hints is
// not copied: it only guides the search for a path, and Ethernet needs none.
int TakeHints(const rdma_addrinfo& hints, rdma_addrinfo* info) {
  const bool passive = (info->ai_flags & RAI_PASSIVE) != 0;
  if (info->ai_src_addr == nullptr &&
      !Copy(hints.ai_src_addr, hints.ai_src_len, &info->ai_src_addr,
            &info->ai_src_len)) {
    return EAI_MEMORY;
  }
  if (info->ai_dst_addr == nullptr && !passive &&
      !Copy(hints.ai_dst_addr, hints.ai_dst_len, &info->ai_dst_addr,
            &info->ai_dst_len)) {
    return EAI_MEMORY;
  }
  if (info->ai_family == 0) {
    const sockaddr* const address =
        info->ai_dst_addr != nullptr ? info->ai_dst_addr : info->ai_src_addr;
    info->ai_family = address != nullptr ? address->sa_family : hints.ai_family;
  }
  return 0;
}

}  // namespace

int FindAddrinfo(const char* node, const char* service,
                 const rdma_addrinfo* hints, UniqueAddrinfo* out) {
  static constexpr rdma_addrinfo kNone = {};
  UniqueAddrinfo info(
      static_cast<rdma_addrinfo*>(std::calloc(1, sizeof(rdma_addrinfo))));
  if (info == nullptr) return EAI_MEMORY;
  const rdma_addrinfo& given = hints != nullptr ? *hints : kNone;
  info->ai_flags = given.ai_flags;
  if (const int error = SetTypes(given, info.get())) return error;
  if (node != nullptr || service != nullptr) {
    // The other flags only controlled the resolver.
    info->ai_flags &= RAI_PASSIVE;
    if (const int error = ResolveNames(node, service, given, info.get())) {
      return error;
    }
  }
  if (const int error = TakeHints(given, info.get())) return error;
  *out = std::move(info);
  return 0;
}

UniqueAddrinfo CopyAddrinfo(const rdma_addrinfo& from) {
  UniqueAddrinfo to(
      static_cast<rdma_addrinfo*>(std::calloc(1, sizeof(rdma_addrinfo))));
  if (to == nullptr) return nullptr;
  to->ai_flags = from.ai_flags;
  to->ai_family = from.ai_family;
  to->ai_qp_type = from.ai_qp_type;
  to->ai_port_space = from.ai_port_space;
  const bool copied =
      Copy(from.ai_src_addr, from.ai_src_len, &to->ai_src_addr,
           &to->ai_src_len) &&
      Copy(from.ai_dst_addr, from.ai_dst_len, &to->ai_dst_addr,
           &to->ai_dst_len) &&
      CopyString(from.ai_src_canonname, &to->ai_src_canonname) &&
      CopyString(from.ai_dst_canonname, &to->ai_dst_canonname) &&
      Copy(from.ai_route, from.ai_route_len, &to->ai_route,
           &to->ai_route_len) &&
      Copy(from.ai_connect, from.ai_connect_len, &to->ai_connect,
           &to->ai_connect_len);
  return copied ? std::move(to) : nullptr;
}

// rdma_resolve_route finds paths, so ai_route and ai_connect stay empty.
CM_EXPORT int rdma_getaddrinfo(const char* node, const char* service,
                               const rdma_addrinfo* hints,
                               rdma_addrinfo** out) {
  const rxe_user::NoCancellation no_cancellation;
  if (const int failed = rxe_user_fail_on_command(__func__)) {
    return Return(failed);
  }
  if (out == nullptr ||
      (node == nullptr && service == nullptr && hints == nullptr)) {
    return Return(EINVAL);
  }
  if (hints != nullptr && (hints->ai_flags & kRaiSa) != 0) {
    // Only services can be resolved by a subnet administrator, and only on
    // InfiniBand ports. We have none.
    const bool dns = node != nullptr || (hints->ai_flags & kRaiDns) != 0;
    return Return(dns ? EOPNOTSUPP : service == nullptr ? EINVAL : ENOENT);
  }
  UniqueAddrinfo info;
  const int error = FindAddrinfo(node, service, hints, &info);
  if (error == EAI_MEMORY) return Return(ENOMEM);
  if (error != 0) return error;
  *out = info.release();
  return 0;
}

CM_EXPORT void rdma_freeaddrinfo(rdma_addrinfo* info) {
  while (info != nullptr) {
    rdma_addrinfo* const next = info->ai_next;
    std::free(info->ai_src_addr);
    std::free(info->ai_dst_addr);
    std::free(info->ai_src_canonname);
    std::free(info->ai_dst_canonname);
    std::free(info->ai_route);
    std::free(info->ai_connect);
    std::free(info);
    info = next;
  }
}

}  // namespace librdmacm
