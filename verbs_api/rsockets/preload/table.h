// The rsockets behind the program's descriptors.
#ifndef VERBS_API_RSOCKETS_PRELOAD_TABLE_H_
#define VERBS_API_RSOCKETS_PRELOAD_TABLE_H_

#include <cstdint>

namespace rspreload {

// Descriptors with larger numbers stay TCP.
inline constexpr int kMaxDescriptors = 1 << 16;

// The program holds a socket of the kernel that is never connected. While an
// rsocket is behind it, calls go to the rsocket. So the kernel keeps the
// descriptor's flags and duplicates, and the socket itself is used if there is
// no RDMA.
//
// Thread: any; no locks.

// The rsocket behind `fd`; -1 if there is none.
int Behind(int fd);
// Puts `rsocket` behind `fd`, which becomes one of its descriptors. Returns
// false, and changes nothing, if the number is too large.
bool Put(int fd, int rsocket);
// Removes the rsocket behind `fd`. Returns it if that was its last descriptor,
// for the caller to close; else -1.
int Take(int fd);

// For edge-triggered epoll(7): the program has read or written, so the next
// event must be reported. `events`: EPOLLIN, EPOLLOUT.
void Used(int rsocket, unsigned events);
// Returns the events used since `*seen` and updates `*seen`.
unsigned TakeUsed(int rsocket, uint64_t* seen);

}  // namespace rspreload

#endif  // VERBS_API_RSOCKETS_PRELOAD_TABLE_H_
