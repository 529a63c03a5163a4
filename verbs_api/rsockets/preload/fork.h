// Connections that parent and child share after fork(2).
#ifndef VERBS_API_RSOCKETS_PRELOAD_FORK_H_
#define VERBS_API_RSOCKETS_PRELOAD_FORK_H_

#include <sys/socket.h>

#include <memory>

namespace rspreload {

// False in a child of vfork(2), which has the memory of its parent and is not
// to change it.
bool IsOwner();

// There is an rsocket: from now on fork(2) is prepared for.
void WatchForks();

// A call that receives from the rsocket behind a descriptor. Who carries the
// connection after a fork begins when it has ended: else the two would take
// turns, and the order be lost.
class ReceiveCall {
 public:
  explicit ReceiveCall(int rsocket);
  ~ReceiveCall();
  ReceiveCall(const ReceiveCall&) = delete;
  ReceiveCall& operator=(const ReceiveCall&) = delete;

  // The connection was handed over just before: `fd` is to be looked up again.
  bool IsTooLate(int fd) const;

 private:
  const int rsocket_;  // -1: forks are not prepared for
};

// An eventfd that becomes readable with the next hand-over, upon which those
// who poll look up their descriptors again.
struct HandoverNews {
  ~HandoverNews();
  const int fd;
};
// Null if forks are not prepared for, or there is no descriptor left.
std::shared_ptr<HandoverNews> NextHandover();

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
