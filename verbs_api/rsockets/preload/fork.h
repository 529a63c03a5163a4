// Connections that parent and child share after fork(2).
#ifndef VERBS_API_RSOCKETS_PRELOAD_FORK_H_
#define VERBS_API_RSOCKETS_PRELOAD_FORK_H_

#include <sys/socket.h>

namespace rspreload {

// False in a child of vfork(2), which has the memory of its parent and is not
// to change it.
bool IsOwner();

// There is an rsocket: from now on fork(2) is prepared for.
void WatchForks();

// `fd` is a local socket that stands for a connection of its parent, or of this
// process before it forked.
bool IsShared(int fd);
// What getpeername(2) or getsockname(2) says of one.
int SharedName(int fd, bool peer, sockaddr* address, socklen_t* length);
// The program closes the descriptors `first` to `last`.
void ForgetShared(int first, int last);
// `copy` is one of `fd`.
void CopyShared(int fd, int copy);

}  // namespace rspreload

#endif  // VERBS_API_RSOCKETS_PRELOAD_FORK_H_
