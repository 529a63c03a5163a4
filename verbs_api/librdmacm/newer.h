// Values of the ABI that are missing in Debian's header.
#ifndef VERBS_API_LIBRDMACM_NEWER_H_
#define VERBS_API_LIBRDMACM_NEWER_H_

namespace librdmacm {

// Events: rdma_resolve_addrinfo(3), rdma_write_cm_event(3). rdma-core defines
// the last one for its own use. Integers, because Debian's enumeration cannot
// hold the values.
inline constexpr int kAddrinfoResolved = 16;
inline constexpr int kAddrinfoError = 17;
inline constexpr int kUserEvent = 18;
inline constexpr int kInternalEvent = 19;

// Flags in hints: which service resolves.
inline constexpr int kRaiSa = 0x10;
inline constexpr int kRaiDns = 0x20;

}  // namespace librdmacm

#endif  // VERBS_API_LIBRDMACM_NEWER_H_
