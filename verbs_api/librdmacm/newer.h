// What headers have that are newer than Debian's: the values of the ABI.
#ifndef VERBS_API_LIBRDMACM_NEWER_H_
#define VERBS_API_LIBRDMACM_NEWER_H_

#include <rdma/rdma_cma.h>

namespace librdmacm {

// Events: rdma_resolve_addrinfo(3), rdma_write_cm_event(3). The last one is for
// librdmacm itself.
inline constexpr auto kAddrinfoResolved = static_cast<rdma_cm_event_type>(16);
inline constexpr auto kAddrinfoError = static_cast<rdma_cm_event_type>(17);
inline constexpr auto kUserEvent = static_cast<rdma_cm_event_type>(18);
inline constexpr auto kInternalEvent = static_cast<rdma_cm_event_type>(19);

// Flags of hints: who is asked.
inline constexpr int kRaiSa = 0x10;
inline constexpr int kRaiDns = 0x20;

}  // namespace librdmacm

#endif  // VERBS_API_LIBRDMACM_NEWER_H_
