#include "verbs_api/rsockets/preload/table.h"

#include <sys/epoll.h>

#include <atomic>

namespace rspreload {
namespace {

// By descriptor: the rsocket's number + 1, or 0.
std::atomic<int> behind[kMaxDescriptors];
// By rsocket: how many descriptors refer to it, and counts of uses: reads in
// the lower half, writes in the upper half.
std::atomic<int> users[kMaxDescriptors];
std::atomic<uint64_t> used[kMaxDescriptors];

bool InRange(int fd) { return fd >= 0 && fd < kMaxDescriptors; }

}  // namespace

int Behind(int fd) { return InRange(fd) ? behind[fd].load() - 1 : -1; }

bool Put(int fd, int rsocket) {
  if (!InRange(fd) || !InRange(rsocket)) return false;
  users[rsocket].fetch_add(1);
  behind[fd].store(rsocket + 1);
  return true;
}

int Take(int fd) {
  if (Behind(fd) < 0) return -1;  // counts are kept for rsockets only
  const int rsocket = behind[fd].exchange(0) - 1;
  if (rsocket < 0) return -1;
  return users[rsocket].fetch_sub(1) == 1 ? rsocket : -1;
}

void Used(int rsocket, unsigned events) {
  if (!InRange(rsocket)) return;
  used[rsocket].fetch_add(((events & EPOLLIN) != 0 ? 1 : 0) +
                          ((events & EPOLLOUT) != 0 ? uint64_t{1} << 32 : 0));
}

unsigned TakeUsed(int rsocket, uint64_t* seen) {
  if (!InRange(rsocket)) return 0;
  const uint64_t now = used[rsocket].load();
  const uint64_t change = now ^ *seen;
  *seen = now;
  return (static_cast<uint32_t>(change) != 0 ? unsigned{EPOLLIN} : 0u) |
         ((change >> 32) != 0 ? unsigned{EPOLLOUT} : 0u);
}

}  // namespace rspreload
