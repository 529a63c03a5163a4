// What headers have that are newer than Debian's: the values of the ABI.
#ifndef VERBS_API_LIBRDMACM_NEWER_H_
#define VERBS_API_LIBRDMACM_NEWER_H_

namespace librdmacm {

// Events: rdma_resolve_addrinfo(3), rdma_write_cm_event(3). The last one is for
// librdmacm itself. Numbers, since Debian's enumeration cannot hold them.
inline constexpr int kAddrinfoResolved = 16;
inline constexpr int kAddrinfoError = 17;
inline constexpr int kUserEvent = 18;
inline constexpr int kInternalEvent = 19;

// Flags of hints: who is asked.
inline constexpr int kRaiSa = 0x10;
inline constexpr int kRaiDns = 0x20;

}  // namespace librdmacm

#endif  // VERBS_API_LIBRDMACM_NEWER_H_
