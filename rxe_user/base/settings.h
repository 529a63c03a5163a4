// What environment variables say about how the engine works.
#ifndef RXE_USER_BASE_SETTINGS_H_
#define RXE_USER_BASE_SETTINGS_H_

#include "transport/base/types.h"

namespace rxe_user {

// How long the helper thread goes on looking for more after it has taken
// something in: nanoseconds, from the microseconds that RXE_USER_SPIN_US says.
// 0 without the variable, or if its value is wrong, of which one line on stderr
// warns.
// Thread: any, while nobody changes the environment.
transport::Time HelperSpin();

}  // namespace rxe_user

#endif  // RXE_USER_BASE_SETTINGS_H_
