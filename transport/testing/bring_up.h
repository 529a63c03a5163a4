// Brings queue pairs up to RTS: what everything needs that tests a connection.
#ifndef TRANSPORT_TESTING_BRING_UP_H_
#define TRANSPORT_TESTING_BRING_UP_H_

#include <cstdint>

#include "transport/qp/queue_pair.h"
#include "wire/address.h"

namespace transport {

// The attributes that the transition to `to` (INIT, RTR, RTS) requires of a
// queue pair of `type` (ibv_modify_qp(3)), and no others.
uint32_t RequiredAttributes(QpType type, QpState to);

// A connection to `peer_qpn`: all rights, 16 READs and atomics each way,
// time-outs of 67 ms (code 14), seven retries and RNR retries without end. What
// else a test cares for it sets itself.
QpAttributes ConnectionTo(uint32_t peer_qpn, const wire::IpAddress& source,
                          const wire::IpAddress& destination);

// From RESET to RTS with `attributes`, whose state is ignored. 0, or what the
// first Modify gave that was refused.
int BringUp(QueuePair& qp, const QpAttributes& attributes, Time now);

}  // namespace transport

#endif  // TRANSPORT_TESTING_BRING_UP_H_
