#include "verbs_api/rsockets/preload/table.h"

#include <atomic>

namespace rspreload {
namespace {

// By descriptor: the rsocket's number + 1, or 0.
std::atomic<int> behind[kMostDescriptors];
// By rsocket: descriptors that have it, and what was used.
std::atomic<int> users[kMostDescriptors];
std::atomic<unsigned> used[kMostDescriptors];

bool InRange(int fd) { return fd >= 0 && fd < kMostDescriptors; }

}  // namespace

int Behind(int fd) {
  return InRange(fd) ? behind[fd].load(std::memory_order_acquire) - 1 : -1;
}

bool Put(int fd, int rsocket) {
  if (!InRange(fd) || !InRange(rsocket)) return false;
  users[rsocket].fetch_add(1);
  behind[fd].store(rsocket + 1, std::memory_order_release);
  return true;
}

int Take(int fd) {
  if (!InRange(fd)) return -1;
  const int rsocket = behind[fd].exchange(0) - 1;
  if (rsocket < 0) return -1;
  return users[rsocket].fetch_sub(1) == 1 ? rsocket : -1;
}

void Used(int rsocket, unsigned events) {
  if (InRange(rsocket)) used[rsocket].fetch_or(events);
}

unsigned TakeUsed(int rsocket) {
  return InRange(rsocket) ? used[rsocket].exchange(0) : 0;
}

}  // namespace rspreload
