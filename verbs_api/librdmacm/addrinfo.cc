// rdma_getaddrinfo(3): getaddrinfo(3) with what RDMA wants beside.
#include <netdb.h>
#include <rdma/rdma_cma.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "verbs_api/librdmacm/endpoint_address.h"
#include "verbs_api/librdmacm/id.h"

namespace librdmacm {
namespace {

constexpr int kKnownFlags =
    RAI_PASSIVE | RAI_NUMERICHOST | RAI_NOROUTE | RAI_FAMILY;

// With malloc, as strings of getaddrinfo are: rdma_freeaddrinfo frees it.
bool Copy(const void* from, size_t length, void** to) {
  *to = std::malloc(length);
  if (*to == nullptr) return false;
  std::memcpy(*to, from, length);
  return true;
}

bool CopyAddress(const sockaddr* from, socklen_t length, sockaddr** to,
                 socklen_t* to_length) {
  void* copy = nullptr;
  if (!Copy(from, length, &copy)) return false;
  *to = static_cast<sockaddr*>(copy);
  *to_length = length;
  return true;
}

// Port space and type of queue pair go together. 0 or an EAI_ code.
int SetTypes(const rdma_addrinfo* hints, rdma_addrinfo* info) {
  const int ps = hints != nullptr ? hints->ai_port_space : 0;
  const int type = hints != nullptr ? hints->ai_qp_type : 0;
  info->ai_port_space =
      ps != 0 ? ps : (type == IBV_QPT_UD ? RDMA_PS_UDP : RDMA_PS_TCP);
  const bool datagrams = info->ai_port_space == RDMA_PS_UDP ||
                         info->ai_port_space == RDMA_PS_IPOIB;
  info->ai_qp_type = type != 0 ? type : (datagrams ? IBV_QPT_UD : IBV_QPT_RC);
  if (info->ai_port_space == RDMA_PS_IB) return 0;  // of any type
  return datagrams == (info->ai_qp_type == IBV_QPT_UD) ? 0 : EAI_SOCKTYPE;
}

// The address of `node` and `service`, by the host's resolver.
int ResolveNames(const char* node, const char* service,
                 const rdma_addrinfo* hints, rdma_addrinfo* info) {
  addrinfo wanted = {};
  wanted.ai_socktype =
      info->ai_qp_type == IBV_QPT_UD ? SOCK_DGRAM : SOCK_STREAM;
  const bool passive = (info->ai_flags & RAI_PASSIVE) != 0;
  if (passive) wanted.ai_flags |= AI_PASSIVE;
  if ((info->ai_flags & RAI_NUMERICHOST) != 0) {
    wanted.ai_flags |= AI_NUMERICHOST;
  }
  if ((info->ai_flags & RAI_FAMILY) != 0) wanted.ai_family = hints->ai_family;
  addrinfo* raw = nullptr;
  if (const int error = getaddrinfo(node, service, &wanted, &raw)) return error;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> found(raw,
                                                                 &freeaddrinfo);
  info->ai_family = found->ai_family;
  const bool copied = passive
                          ? CopyAddress(found->ai_addr, found->ai_addrlen,
                                        &info->ai_src_addr, &info->ai_src_len)
                          : CopyAddress(found->ai_addr, found->ai_addrlen,
                                        &info->ai_dst_addr, &info->ai_dst_len);
  return copied ? 0 : EAI_MEMORY;
}

// Addresses that are in the hints and not yet in the answer.
int TakeHints(const rdma_addrinfo& hints, rdma_addrinfo* info) {
  if (info->ai_src_addr == nullptr && hints.ai_src_len != 0 &&
      !CopyAddress(hints.ai_src_addr, hints.ai_src_len, &info->ai_src_addr,
                   &info->ai_src_len)) {
    return EAI_MEMORY;
  }
  if (info->ai_dst_addr == nullptr && hints.ai_dst_len != 0 &&
      !CopyAddress(hints.ai_dst_addr, hints.ai_dst_len, &info->ai_dst_addr,
                   &info->ai_dst_len)) {
    return EAI_MEMORY;
  }
  if (info->ai_family == 0) info->ai_family = hints.ai_family;
  return 0;
}

int Fill(const char* node, const char* service, const rdma_addrinfo* hints,
         rdma_addrinfo* info) {
  if (hints != nullptr) {
    if ((hints->ai_flags & ~kKnownFlags) != 0) return EAI_BADFLAGS;
    info->ai_flags = hints->ai_flags;
  }
  if (const int error = SetTypes(hints, info)) return error;
  if (node != nullptr || service != nullptr) {
    if (const int error = ResolveNames(node, service, hints, info)) {
      return error;
    }
  }
  return hints != nullptr ? TakeHints(*hints, info) : 0;
}

}  // namespace

// Paths are for rdma_resolve_route: there are no ai_route and no ai_connect.
CM_EXPORT int rdma_getaddrinfo(const char* node, const char* service,
                               const rdma_addrinfo* hints,
                               rdma_addrinfo** out) {
  const rxe_user::NoCancellation no_cancellation;
  if (out == nullptr ||
      (node == nullptr && service == nullptr && hints == nullptr)) {
    return Return(EINVAL);
  }
  auto* info =
      static_cast<rdma_addrinfo*>(std::calloc(1, sizeof(rdma_addrinfo)));
  if (info == nullptr) return EAI_MEMORY;
  if (const int error = Fill(node, service, hints, info)) {
    rdma_freeaddrinfo(info);
    return error;
  }
  *out = info;
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
