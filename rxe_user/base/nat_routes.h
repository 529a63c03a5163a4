// Routes to peers behind an address translator (NAT), learned from their
// packets (transport/endpoint/translation.h), and the warning that such packets
// are dropped.
#ifndef RXE_USER_BASE_NAT_ROUTES_H_
#define RXE_USER_BASE_NAT_ROUTES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "transport/base/types.h"
#include "wire/address.h"

namespace rxe_user {

// RXE_USER_NAT=1: packets of such peers are accepted, and answered to the
// translated address. All packets are sent by the receiving socket, from UDP
// port 4791, so that answers pass the translator. Read once.
bool NatMode();

// Queue pair `qpn` of `peer` (its own address) was seen at `via`. The key is
// both the address and the number, since several peers may have the same
// private address. When there are many entries, the oldest are dropped. Thread:
// any.
void LearnRoute(const wire::IpAddress& peer, uint32_t qpn,
                const transport::Via& via);
// Empty (port 0) if the route is unknown, and without NatMode. Thread: any.
transport::Via FindRoute(const wire::IpAddress& peer, uint32_t qpn);

// Packets that arrive from `seen` were sent by `sender` (its own address). When
// there are many entries, the oldest are dropped. Thread: any.
void LearnSender(const transport::Via& seen, const wire::IpAddress& sender);
// Absent if unknown. Thread: any.
std::optional<wire::IpAddress> SenderAt(const transport::Via& seen);

// The program has an address handle for `peer` or a connection to it. For IPv6,
// the sender of a datagram is looked for among these peers; the newest are
// kept. Does nothing without NatMode. Thread: any.
void NotePeer(const wire::IpAddress& peer);
// Possible addresses of the sender of a datagram from `seen`: that of SenderAt
// and, over IPv6, the noted peers. Thread: any.
std::vector<wire::IpAddress> PossibleSenders(const transport::Via& seen);

// Prints, once for each peer, that packets of `peer`, which arrive from `seen`,
// are dropped, and what to do about it.
void WarnOfTranslation(const wire::IpAddress& peer, uint16_t port,
                       const transport::Via& seen);

}  // namespace rxe_user

#endif  // RXE_USER_BASE_NAT_ROUTES_H_
