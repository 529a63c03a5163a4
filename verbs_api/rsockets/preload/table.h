// Which descriptors of the program have an rsocket behind them.
#ifndef VERBS_API_RSOCKETS_PRELOAD_TABLE_H_
#define VERBS_API_RSOCKETS_PRELOAD_TABLE_H_

#include <cstdint>

namespace rspreload {

// Numbers beyond are TCP.
inline constexpr int kMostDescriptors = 1 << 16;

// The program has a socket of the kernel, never connected, whose number it
// knows; while an rsocket stands behind it, calls go there. So flags of
// descriptors and copies of them are the kernel's business, and the program's
// socket can be used itself where there is no RDMA.
//
// Thread: any; no locks.

// The rsocket behind `fd`; -1 if there is none.
int Behind(int fd);
// From now on `rsocket` is behind `fd`, which is one more that has it. False if
// the number is too large: then it is behind nothing.
bool Put(int fd, int rsocket);
// Nothing is behind `fd` any more. Returns the rsocket if that was its last
// descriptor: the caller closes it. Else -1.
int Take(int fd);

// For edge-triggered epoll(7): the program has read or written, so that the
// next event is news. `events`: EPOLLIN, EPOLLOUT.
void Used(int rsocket, unsigned events);
// What was used since the account was `*seen`, which becomes what it is now.
unsigned TakeUsed(int rsocket, uint64_t* seen);

}  // namespace rspreload

#endif  // VERBS_API_RSOCKETS_PRELOAD_TABLE_H_
