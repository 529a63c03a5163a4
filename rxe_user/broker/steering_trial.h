// Whether this system steers datagrams as steering.h wants it.
#ifndef RXE_USER_BROKER_STEERING_TRIAL_H_
#define RXE_USER_BROKER_STEERING_TRIAL_H_

#include "absl/status/status.h"

namespace rxe_user::broker {

// Binds two sockets of a group of its own to a free port of the loopback
// address, steers by SteeringProgram, and sends a packet to each.
// kUnimplemented, with a clear reason: the program is refused (sandboxes,
// profiles), or it is taken and one of the packets arrives at the other socket.
// OK otherwise, also where there is nothing to try it on (no loopback address)
// and where neither packet arrives within a second. Touches no socket of
// others. Thread: any.
absl::Status TrySteering();

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_STEERING_TRIAL_H_
