// What environment variables say about how the engine works.
#ifndef RXE_USER_BASE_SETTINGS_H_
#define RXE_USER_BASE_SETTINGS_H_

#include <atomic>
#include <string>

#include "transport/base/types.h"

namespace rxe_user {

// How long the helper thread goes on looking for more after it has taken
// something in: nanoseconds, from the microseconds that RXE_USER_SPIN_US says.
// 0 without the variable, or if its value is wrong, of which one line on stderr
// tells.
// Thread: any, while nobody changes the environment.
transport::Time HelperSpin();

// A line on stderr, unless `told` says that there has been one: settings are
// the same for every device of the process.
void TellOnce(std::atomic<bool>& told, const std::string& line);

}  // namespace rxe_user

#endif  // RXE_USER_BASE_SETTINGS_H_
