// The lookup behind rdma_getaddrinfo(3) and rdma_resolve_addrinfo(3).
#ifndef VERBS_API_LIBRDMACM_ADDRINFO_H_
#define VERBS_API_LIBRDMACM_ADDRINFO_H_

#include <rdma/rdma_cma.h>

#include <memory>

namespace librdmacm {

struct FreeAddrinfo {
  void operator()(rdma_addrinfo* info) const { rdma_freeaddrinfo(info); }
};
using UniqueAddrinfo = std::unique_ptr<rdma_addrinfo, FreeAddrinfo>;

// Finds the address of `node` and `service`, and adds what the hints say. At
// least one of the arguments must not be null. May block in the host's
// resolver. Returns 0 or an EAI_ code (EAI_SYSTEM: see errno). RAI_SA is
// ignored here: the callers refuse it.
int FindAddrinfo(const char* node, const char* service,
                 const rdma_addrinfo* hints, UniqueAddrinfo* out);

// Copies the first entry of a list. Null: out of memory.
UniqueAddrinfo CopyAddrinfo(const rdma_addrinfo& from);

}  // namespace librdmacm

#endif  // VERBS_API_LIBRDMACM_ADDRINFO_H_
