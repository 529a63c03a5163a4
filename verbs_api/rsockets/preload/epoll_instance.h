// epoll instances and the rsockets that they watch.
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

// Bits of epoll_event::events that are flags, not events.
inline constexpr uint32_t kFlags =
    EPOLLET | EPOLLONESHOT | EPOLLWAKEUP | EPOLLEXCLUSIVE;

// An rsocket that an instance watches.
struct Watched {
  epoll_event event;
  uint64_t version;       // changes with every modification
  uint64_t used = 0;      // the state of TakeUsed
  uint32_t reported = 0;  // edge-triggered: events already reported
};

// Guarded by `Instances::mutex`.
struct Instance {
  ~Instance();

  // Its descriptors, duplicates of one another.
  std::vector<int> numbers;
  // The watched rsockets, by the program's descriptor.
  std::map<int, Watched> sockets;
  uint64_t versions = 0;
  // The descriptor of the last event, or -1 for the kernel's instance. The next
  // search starts after it.
  int last = -1;
  // eventfds: one for each thread that waits for rsockets, and unused ones.
  std::vector<int> waiting;
  std::vector<int> spare;
  // An eventfd in the kernel's instance, which wakes the threads that wait
  // there. -1 until the first rsocket.
  int news = -1;
};

// All instances, by descriptor.
struct Instances {
  std::mutex mutex;
  std::map<int, std::shared_ptr<Instance>> map;
};

Instances& AllEpolls();

// By descriptor: the number of threads that wait in the kernel on it.
extern std::atomic<int> in_kernel[kMaxDescriptors];

void Clear(int eventfd);
// Removes `news` from events of the kernel. Returns how many events are left.
// Needs no instance: it may be gone, or belong to another process.
int WithoutNews(epoll_event* events, int count);
// Returns false without locking if no instance watches an rsocket.
bool HasRsockets(int epoll);

// --- `Instances::mutex` is held.

// Null: not an instance, or it watches no rsockets.
std::shared_ptr<Instance> FindEpoll(int epoll);
// A thread has seen `news`. It stays readable until all threads that wait in
// the kernel have returned.
void HeardNews(const Instance& instance);

}  // namespace rspreload

#endif  // VERBS_API_RSOCKETS_PRELOAD_EPOLL_INSTANCE_H_
