// epoll(7) over rsockets.
#ifndef VERBS_API_RSOCKETS_PRELOAD_EPOLL_H_
#define VERBS_API_RSOCKETS_PRELOAD_EPOLL_H_

#include <sys/epoll.h>

namespace rspreload {

// The program closes the descriptors `first` to `last`: epoll instances, or
// something in one.
void ForgetEpoll(int first, int last);
// The program has made `copy` of `epoll`, if that is an instance: it is the
// same one.
void CopyEpoll(int epoll, int copy);
// There is no rsocket behind `fd` any more: the instances that have it get its
// events from the kernel.
void LeaveEpollToKernel(int fd);
// `rsocket` begins something new, connecting or listening: edge-triggered, too,
// its events are to be told again.
void RenewInEpoll(int rsocket);

// fork(2): the table is whole in the child, and its lock free.
void LockEpollForFork();
void UnlockEpollAfterFork();
// The threads that wait are the parent's.
void UnlockEpollInChild();

}  // namespace rspreload

#endif  // VERBS_API_RSOCKETS_PRELOAD_EPOLL_H_
