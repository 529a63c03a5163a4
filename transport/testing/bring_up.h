// Brings queue pairs to RTS, for tests of connections.
#ifndef TRANSPORT_TESTING_BRING_UP_H_
#define TRANSPORT_TESTING_BRING_UP_H_

#include <cstdint>

#include "transport/qp/queue_pair.h"
#include "wire/address.h"

namespace transport {

// The attributes that the transition to `to` (INIT, RTR, RTS) requires for
// `type` (ibv_modify_qp(3)).
uint32_t RequiredAttributes(QpType type, QpState to);

// Attributes of a connection to `peer_qpn`: all rights, 16 READs and atomics
// each way, timeout 67 ms (code 14), seven retries, unlimited RNR retries.
QpAttributes ConnectionTo(uint32_t peer_qpn, const wire::IpAddress& source,
                          const wire::IpAddress& destination);

// RESET to RTS (kDct: to RTR) with `attributes`, whose state is ignored.
// Returns 0, or the first error of Modify.
int BringUp(QueuePair& qp, const QpAttributes& attributes, Time now);

}  // namespace transport

#endif  // TRANSPORT_TESTING_BRING_UP_H_
