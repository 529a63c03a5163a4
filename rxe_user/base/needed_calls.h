// Checks that this process may make the system calls that are indispensable.
#ifndef RXE_USER_BASE_NEEDED_CALLS_H_
#define RXE_USER_BASE_NEEDED_CALLS_H_

#include "absl/status/status.h"

namespace rxe_user {

// OK, or one clear line that names a call that a seccomp profile refuses or the
// system lacks (errno_status.h): memfd_create(2), eventfd(2), recvmmsg(2),
// sendmmsg(2). Each call is tried with arguments that the kernel rejects, so
// nothing is opened or sent. Thread: any.
absl::Status CheckNeededCalls();

}  // namespace rxe_user

#endif  // RXE_USER_BASE_NEEDED_CALLS_H_
