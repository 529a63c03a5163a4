// Connections that parent and child share after fork(2).
#ifndef VERBS_API_RSOCKETS_PRELOAD_FORK_H_
#define VERBS_API_RSOCKETS_PRELOAD_FORK_H_

#include <sys/socket.h>

#include <memory>

namespace rspreload {

// False in a child of vfork(2), which shares its parent's memory and must not
// change it.
bool IsOwner();

// An rsocket exists: prepare for fork(2) from now on.
void WatchForks();

// A call that receives from the rsocket behind a descriptor. After a fork, the
// carrying thread starts when such calls have ended. If both received, the
// order of bytes would be lost.
class ReceiveCall {
 public:
  explicit ReceiveCall(int rsocket);
  ~ReceiveCall();
  ReceiveCall(const ReceiveCall&) = delete;
  ReceiveCall& operator=(const ReceiveCall&) = delete;

  // Whether the connection was handed over just before. Then look `fd` up
  // again.
  bool IsTooLate(int fd) const;

 private:
  const int rsocket_;  // -1: forks are not prepared for
};

// An eventfd that becomes readable at the next hand-over. Polling threads then
// look up their descriptors again.
struct HandoverNews {
  ~HandoverNews();
  const int fd;
};
// Null if forks are not prepared for, or no descriptor is left.
std::shared_ptr<HandoverNews> NextHandover();

// Whether `fd` is a local socket that replaced a connection at a fork, of this
// process or of its parent.
bool IsShared(int fd);
// getpeername(2) or getsockname(2) of a shared connection.
int SharedName(int fd, bool peer, sockaddr* address, socklen_t* length);
// The program closes the descriptors `first` to `last`.
void ForgetShared(int first, int last);
// The program has duplicated `fd` as `copy`.
void CopyShared(int fd, int copy);

}  // namespace rspreload

#endif  // VERBS_API_RSOCKETS_PRELOAD_FORK_H_
