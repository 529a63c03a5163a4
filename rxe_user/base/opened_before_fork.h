// The error for using, in a child of fork(), an object from before the fork.
#ifndef RXE_USER_BASE_OPENED_BEFORE_FORK_H_
#define RXE_USER_BASE_OPENED_BEFORE_FORK_H_

#include "absl/status/status.h"

namespace rxe_user {

inline constexpr char kOpenedBeforeFork[] =
    "the device was opened before fork() and stayed with the parent process; "
    "open it after forking";

inline absl::Status OpenedBeforeForkError() {
  return absl::FailedPreconditionError(kOpenedBeforeFork);
}

}  // namespace rxe_user

#endif  // RXE_USER_BASE_OPENED_BEFORE_FORK_H_
