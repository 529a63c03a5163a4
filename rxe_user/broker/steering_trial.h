// Tests whether this system steers datagrams as steering.h requires.
#ifndef RXE_USER_BROKER_STEERING_TRIAL_H_
#define RXE_USER_BROKER_STEERING_TRIAL_H_

#include "absl/status/status.h"

namespace rxe_user::broker {

// Binds two sockets, as a group of their own, to a free port of the loopback
// address, attaches SteeringProgram, and sends a packet to each.
// kUnimplemented, with a clear reason: the program is refused (sandboxes,
// profiles), or a packet arrives at the wrong socket. OK otherwise, even
// without a loopback address, or if neither packet arrives within a second.
// Does not touch other sockets. Thread: any.
absl::Status TrySteering();

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_STEERING_TRIAL_H_
