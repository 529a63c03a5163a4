// Starting the port broker from within an application.
#ifndef RXE_USER_BROKER_SPAWN_H_
#define RXE_USER_BROKER_SPAWN_H_

#include <string>

#include "absl/status/status.h"

namespace rxe_user::broker {

// How a spawned broker reports that it serves, or that another one does.
inline constexpr char kReadyArgument[] = "--ready";
inline constexpr int kReadyFd = 3;

// RXE_USER_BROKER, else ../libexec/rxe-user-port-broker as seen from the folder
// of the library (or program) that holds this code. A secure (setuid) program's
// environment is not heeded.
std::string BrokerPath();

// Starts a broker and waits until it, or one that was faster, serves. The
// application sees no SIGCHLD, no child to wait for and no descriptor; the
// broker inherits nothing: own session, folder /, descriptors closed, of the
// environment RXE_USER_* only, and nothing of a secure program's. (An
// application that adopts orphans, being process 1 or a subreaper, adopts the
// broker too.) kNotFound or kPermissionDenied when it cannot be started.
absl::Status SpawnBroker();

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_SPAWN_H_
