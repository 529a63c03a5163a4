// What rdma_getaddrinfo(3) and rdma_resolve_addrinfo(3) find.
#ifndef VERBS_API_LIBRDMACM_ADDRINFO_H_
#define VERBS_API_LIBRDMACM_ADDRINFO_H_

#include <rdma/rdma_cma.h>

#include <memory>

namespace librdmacm {

struct FreeAddrinfo {
  void operator()(rdma_addrinfo* info) const { rdma_freeaddrinfo(info); }
};
using UniqueAddrinfo = std::unique_ptr<rdma_addrinfo, FreeAddrinfo>;

// The address of `node` and `service`, with what the hints have beside. Each
// may be null, but not all. Asks the host's resolver, which may take its time.
// 0, or an EAI_ code (EAI_SYSTEM: errno says more). RAI_SA is ignored: the
// callers refuse it.
int FindAddrinfo(const char* node, const char* service,
                 const rdma_addrinfo* hints, UniqueAddrinfo* out);

// A copy of the first one of a list, alone. Null: no memory.
UniqueAddrinfo CopyAddrinfo(const rdma_addrinfo& from);

}  // namespace librdmacm

#endif  // VERBS_API_LIBRDMACM_ADDRINFO_H_
