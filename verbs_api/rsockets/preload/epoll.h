// epoll(7) over rsockets.
#ifndef VERBS_API_RSOCKETS_PRELOAD_EPOLL_H_
#define VERBS_API_RSOCKETS_PRELOAD_EPOLL_H_

#include <sys/epoll.h>

namespace rspreload {

// The program closes the descriptors `first` to `last`, which may be epoll
// instances or watched by one.
void ForgetEpoll(int first, int last);
// The program has duplicated `epoll` as `copy`. If it is an instance, both
// numbers refer to it.
void CopyEpoll(int epoll, int copy);
// `fd` has no rsocket any more. Instances that watch it now get its events from
// the kernel.
void LeaveEpollToKernel(int fd);
// `rsocket` starts connecting or listening. Edge-triggered events are reported
// again.
void RenewInEpoll(int rsocket);

// fork(2): the table is consistent in the child, and its lock is free.
void LockEpollForFork();
void UnlockEpollAfterFork();
// Waiting threads exist only in the parent.
void UnlockEpollInChild();

}  // namespace rspreload

#endif  // VERBS_API_RSOCKETS_PRELOAD_EPOLL_H_
