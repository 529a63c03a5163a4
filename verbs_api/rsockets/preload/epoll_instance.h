// epoll instances with the rsockets that are kept beside them.
#ifndef VERBS_API_RSOCKETS_PRELOAD_EPOLL_INSTANCE_H_
#define VERBS_API_RSOCKETS_PRELOAD_EPOLL_INSTANCE_H_

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "verbs_api/rsockets/preload/table.h"

namespace rspreload {

// What of epoll_event::events is not an event.
inline constexpr uint32_t kFlags =
    EPOLLET | EPOLLONESHOT | EPOLLWAKEUP | EPOLLEXCLUSIVE;

// An rsocket in one.
struct Watched {
  epoll_event event;
  uint64_t version;       // another one after each change
  uint64_t used = 0;      // of TakeUsed
  uint32_t reported = 0;  // edge-triggered: what the program knows already
};

// Guarded by `Instances::mutex`.
struct Instance {
  ~Instance();

  // Its descriptors: copies of one another.
  std::vector<int> numbers;
  // The rsockets, by the program's descriptor.
  std::map<int, Watched> sockets;
  uint64_t versions = 0;
  // The descriptor of the last event, -1 if it was the kernel's: the next one
  // begins behind it.
  int last = -1;
  // eventfds: of the threads that wait beside the kernel, one for each, and
  // those that nobody uses.
  std::vector<int> waiting;
  std::vector<int> spare;
  // An eventfd in the kernel's instance: wakes the threads that wait there. -1:
  // there was no rsocket yet.
  int news = -1;
};

// By epoll instance.
struct Instances {
  std::mutex mutex;
  std::map<int, std::shared_ptr<Instance>> map;
};

Instances& AllEpolls();

// By descriptor: how many threads wait in the kernel by it.
extern std::atomic<int> in_kernel[kMostDescriptors];

void Clear(int eventfd);
// Takes `news` out of what the kernel has told: how many events are left. It
// needs no instance: the one that it is of may be gone, or another process's.
int WithoutNews(epoll_event* events, int count);
// False without a look at the table if no instance has any.
bool HasRsockets(int epoll);

// --- With `Instances::mutex`.

// Null: it has no rsockets, or is none.
std::shared_ptr<Instance> FindEpoll(int epoll);
// A thread has heard of `news`: it stays readable until all that waited in the
// kernel have left it.
void HeardNews(const Instance& instance);

}  // namespace rspreload

#endif  // VERBS_API_RSOCKETS_PRELOAD_EPOLL_INSTANCE_H_
