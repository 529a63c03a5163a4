// What environment variables say about how the engine works.
#ifndef RXE_USER_BASE_SETTINGS_H_
#define RXE_USER_BASE_SETTINGS_H_

#include "transport/base/types.h"

namespace rxe_user {

// 0 and 1 without the variables. Of a wrong value one line on stderr warns,
// and it is as if there were none. Thread: any, while nobody changes the
// environment.

// RXE_USER_SPIN_US: how long the helper thread goes on looking for more after
// it has taken something in; nanoseconds.
transport::Time HelperSpin();
// RXE_USER_LANES: how many lanes an engine has, up to kMaxLanes.
int LaneCount();

}  // namespace rxe_user

#endif  // RXE_USER_BASE_SETTINGS_H_
