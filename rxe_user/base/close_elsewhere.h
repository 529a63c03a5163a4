// Descriptors that a stranger has had a hand in.
#ifndef RXE_USER_BASE_CLOSE_ELSEWHERE_H_
#define RXE_USER_BASE_CLOSE_ELSEWHERE_H_

#include "rxe_user/base/unique_fd.h"

namespace rxe_user {

// Closes `fd` on a thread of its own. close(2) may take as long as somebody
// else likes: a TCP socket waits as SO_LINGER says, a file for its file system,
// which may be a program. It is so with a Unix socket, too, in which such
// descriptors were sent that nobody has received.
//
// Not more than kMostClosing wait at a time in a process. False: so many do, or
// there is no thread to be had, and `fd` is as it was. Thread: any. Never
// waits.
inline constexpr int kMostClosing = 16;
[[nodiscard]] bool CloseElsewhere(UniqueFd& fd);

}  // namespace rxe_user

#endif  // RXE_USER_BASE_CLOSE_ELSEWHERE_H_
