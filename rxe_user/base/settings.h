// Settings of the engine from environment variables.
#ifndef RXE_USER_BASE_SETTINGS_H_
#define RXE_USER_BASE_SETTINGS_H_

#include "transport/base/types.h"

namespace rxe_user {

// The defaults are 0 and 1. A wrong value is ignored, with one line on stderr.
// Thread: any, while no thread changes the environment.

// RXE_USER_SPIN_US, in nanoseconds: how long the helper thread busy-polls after
// each packet.
transport::Time HelperSpin();
// RXE_USER_LANES: the number of lanes of an engine, up to kMaxLanes.
int LaneCount();

}  // namespace rxe_user

#endif  // RXE_USER_BASE_SETTINGS_H_
