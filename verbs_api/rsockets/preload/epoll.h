// epoll(7) over rsockets.
#ifndef VERBS_API_RSOCKETS_PRELOAD_EPOLL_H_
#define VERBS_API_RSOCKETS_PRELOAD_EPOLL_H_

#include <sys/epoll.h>

namespace rspreload {

// The program closes `fd`: an epoll instance, or something in one.
void ForgetEpoll(int fd);

// fork(2): the table is whole in the child, and its lock free.
void LockEpollForFork();
void UnlockEpollAfterFork();

}  // namespace rspreload

#endif  // VERBS_API_RSOCKETS_PRELOAD_EPOLL_H_
