// Closes descriptors that came from other processes.
#ifndef RXE_USER_BASE_CLOSE_ELSEWHERE_H_
#define RXE_USER_BASE_CLOSE_ELSEWHERE_H_

#include "rxe_user/base/unique_fd.h"

namespace rxe_user {

// Closes `fd` on a new thread, since close(2) may block for as long as another
// process wants: a TCP socket waits for its SO_LINGER, a file for its file
// system, which may be a process (FUSE). The same holds for a Unix socket with
// unread messages that contain such descriptors.
//
// At most kMaxClosing closes are in progress in a process. False: there are
// too many, or no thread can be started; `fd` is unchanged. Thread: any. Never
// blocks.
inline constexpr int kMaxClosing = 16;
[[nodiscard]] bool CloseElsewhere(UniqueFd& fd);

}  // namespace rxe_user

#endif  // RXE_USER_BASE_CLOSE_ELSEWHERE_H_
