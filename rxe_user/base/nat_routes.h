// Where peers are whose addresses something between translates, as far as their
// packets have told (transport/endpoint/translation.h), and the warning of what
// is dropped for that reason.
#ifndef RXE_USER_BASE_NAT_ROUTES_H_
#define RXE_USER_BASE_NAT_ROUTES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "transport/base/types.h"
#include "wire/address.h"

namespace rxe_user {

// RXE_USER_NAT=1: packets of such peers are taken, and answered where they come
// from; and all packets are sent from UDP port 4791, the socket that receives,
// so that answers come back through what translates. Read once.
bool NatMode();

// Queue pair `qpn` of `peer`, by its own address, was seen at `via`. Many peers
// may have one private address, so it takes both to name one. The oldest are
// forgotten when there are many. Thread: any.
void LearnRoute(const wire::IpAddress& peer, uint32_t qpn,
                const transport::Via& via);
// Empty (port 0) where nothing is known, and without NatMode. Thread: any.
transport::Via FindRoute(const wire::IpAddress& peer, uint32_t qpn);

// The program has an address handle of `peer`, or a connection with it: over
// IPv6 a datagram's own sender is found among these, of which the newest are
// kept. Nothing without NatMode. Thread: any.
void NotePeer(const wire::IpAddress& peer);
// Those of IPv6.
std::vector<wire::IpAddress> NotedPeers();

// One line on stderr: packets of `peer`, which come from `seen`, are dropped,
// and what to do. Once for each peer.
void WarnOfTranslation(const wire::IpAddress& peer, uint16_t port,
                       const transport::Via& seen);

}  // namespace rxe_user

#endif  // RXE_USER_BASE_NAT_ROUTES_H_
