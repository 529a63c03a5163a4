// Starting the port broker from within an application.
#ifndef RXE_USER_BROKER_SPAWN_H_
#define RXE_USER_BROKER_SPAWN_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "rxe_user/base/unique_fd.h"

namespace rxe_user::broker {

// How a spawned broker reports that it serves, or that another one does: by one
// byte; or why it cannot, by text behind another byte.
inline constexpr char kReadyArgument[] = "--ready";
inline constexpr int kReadyFd = 3;
inline constexpr char kServesByte = 'R';
inline constexpr char kFailedByte = '!';

// RXE_USER_BROKER, else ../libexec/rxe-user-port-broker as seen from the folder
// of the library (or program) that holds this code. A secure (setuid) program's
// environment is not heeded.
std::string BrokerPath();

// Starts a broker. `starting` is for AwaitBroker; it is close-on-exec. The
// application sees no SIGCHLD and no child to wait for; the broker inherits
// nothing: own session, folder /, descriptors closed, of the environment
// RXE_USER_* only, and nothing of a secure program's. (An application that
// adopts orphans, being process 1 or a subreaper, adopts the broker too.)
// kNotFound or kPermissionDenied when it cannot be started.
absl::Status SpawnBroker(UniqueFd& starting);

enum class Progress {
  kServes,    // it does, or one that was faster
  kComingUp,  // it lives, for all that is known
  kDied,
};
// How far the broker of SpawnBroker has come, once there is news or `wait_ms`
// are over. A busy machine may keep it for long. `why` is why it died, if it
// said so, and is not changed else.
Progress AwaitBroker(const UniqueFd& starting, int64_t wait_ms,
                     std::string& why);

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_SPAWN_H_
