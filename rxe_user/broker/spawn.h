// Starts the port broker from within an application.
#ifndef RXE_USER_BROKER_SPAWN_H_
#define RXE_USER_BROKER_SPAWN_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "rxe_user/base/unique_fd.h"

namespace rxe_user::broker {

// A spawned broker writes one byte when it serves, or when another one does. If
// it cannot, it writes another byte and the reason.
inline constexpr char kReadyArgument[] = "--ready";
inline constexpr int kReadyFd = 3;
inline constexpr char kServesByte = 'R';
inline constexpr char kFailedByte = '!';

// RXE_USER_BROKER, else ../libexec/rxe-user-port-broker, relative to the folder
// of the library (or program) with this code. A secure (setuid) program ignores
// its environment.
std::string BrokerPath();

// Starts a broker. `starting` is for AwaitBroker and is close-on-exec. The
// application sees no SIGCHLD and no child process. The broker inherits
// nothing: it has its own session, working directory / and closed descriptors.
// Of the environment it gets only RXE_USER_*, or nothing from a secure program.
// (An application that adopts orphans, being process 1 or a subreaper, adopts
// the broker too.) kNotFound or kPermissionDenied if it cannot be started.
absl::Status SpawnBroker(UniqueFd& starting);

enum class Progress {
  kServes,    // this broker serves, or another one does
  kComingUp,  // as far as is known
  kDied,
};
// Returns the state of the broker that SpawnBroker started, as soon as it
// changes or after `wait_ms`. Starting may take long on a busy machine. `why`
// is set if the broker died and gave a reason.
Progress AwaitBroker(const UniqueFd& starting, int64_t wait_ms,
                     std::string& why);

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_SPAWN_H_
