// Waiting on epoll instances. An instance without rsockets waits in the kernel;
// otherwise rpoll waits for its rsockets and the kernel's instance.
#include <poll.h>
#include <rdma/rsocket.h>
#include <signal.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <mutex>
#include <vector>

#include "verbs_api/rsockets/preload/epoll_instance.h"
#include "verbs_api/rsockets/preload/real.h"
#include "verbs_api/rsockets/preload/table.h"
#include "verbs_api/rsockets/preload/waiting.h"

namespace rspreload {
namespace {

// --- `Instances::mutex` is held, unless stated otherwise.

// An rsocket that is polled.
struct PolledSocket {
  int fd;
  int rsocket;
  uint64_t version;
  short events;
};

std::vector<PolledSocket> Collect(Instance& instance) {
  std::vector<PolledSocket> looked;
  for (auto& [fd, watched] : instance.sockets) {
    const int rsocket = Behind(fd);
    if (rsocket < 0) continue;
    uint32_t wanted = watched.event.events & ~kFlags;
    if (wanted == 0) continue;  // EPOLLONESHOT has reported it
    if ((watched.event.events & EPOLLET) != 0) {
      watched.reported &= ~TakeUsed(rsocket, &watched.used);
      wanted &= ~watched.reported;
      // EPOLLHUP and EPOLLERR are reported without being asked for. No event
      // follows them.
      if ((watched.reported & (EPOLLHUP | EPOLLERR)) != 0) continue;
    }
    looked.push_back({.fd = fd,
                      .rsocket = rsocket,
                      .version = watched.version,
                      .events = static_cast<short>(wanted)});
  }
  return looked;
}

// Reports the result of rpoll for an rsocket. Returns 0 if another thread has
// reported it or changed the events, else 1.
int ReportSocket(Instance& instance, const PolledSocket& looked, short found,
                 epoll_event* event) {
  const auto at = instance.sockets.find(looked.fd);
  if (found == 0 || at == instance.sockets.end() ||
      at->second.version != looked.version) {
    return 0;
  }
  Watched& watched = at->second;
  if ((found & POLLNVAL) != 0) {
    instance.sockets.erase(at);
    return 0;
  }
  const uint32_t events = watched.event.events;
  const uint32_t ready =
      static_cast<uint16_t>(found) & (events | EPOLLERR | EPOLLHUP);
  if (ready == 0 || (events & ~kFlags) == 0) return 0;
  if ((events & EPOLLET) != 0 && (ready & ~watched.reported) == 0) return 0;
  watched.reported |= ready;
  event->events = ready;
  event->data = watched.event.data;
  if ((events & EPOLLONESHOT) != 0) watched.event.events &= kFlags;
  return 1;
}

// Turns the results of rpoll, with the kernel's instance at the end, into
// events. Returns their number or -1.
int Report(int epoll, Instance& instance,
           const std::vector<PolledSocket>& looked,
           const std::vector<pollfd>& found, epoll_event* events,
           int max_events) {
  const size_t kernel = looked.size(), places = kernel + 1;
  const auto first = std::upper_bound(
      looked.begin(), looked.end(), instance.last,
      [](int fd, const PolledSocket& other) { return fd < other.fd; });
  const auto offset = static_cast<size_t>(first - looked.begin());
  int n = 0;
  for (size_t i = 0; i < places && n < max_events; ++i) {
    const size_t place = (offset + i) % places;
    int got = 0;
    if (place != kernel) {
      got = ReportSocket(instance, looked[place], found[place].revents,
                         events + n);
    } else if (found[kernel].revents != 0) {
      got = REAL(epoll_wait)(epoll, events + n, max_events - n, 0);
      if (got < 0) return n > 0 ? n : -1;
      const int left = WithoutNews(events + n, got);
      if (left != got) HeardNews(instance);
      got = left;
    }
    if (got > 0) instance.last = place == kernel ? -1 : looked[place].fd;
    n += got;
  }
  return n;
}

// Waits with rpoll while the instance has rsockets. Returns 0 if it has none
// any more, or at the deadline. The lock is not held.
int WaitBeside(int epoll, epoll_event* events, int max_events,
               const Deadline& deadline, WaitMask& mask) {
  std::unique_lock<std::mutex> lock(AllEpolls().mutex);
  const std::shared_ptr<Instance> instance = FindEpoll(epoll);
  if (instance == nullptr) return 0;
  if (instance->spare.empty()) {
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0) return -1;
    instance->spare.push_back(fd);
  }
  const int waiter = instance->spare.back();
  instance->spare.pop_back();
  instance->waiting.push_back(waiter);
  int n;
  do {
    const std::vector<PolledSocket> looked = Collect(*instance);
    lock.unlock();
    std::vector<pollfd> found;
    for (const PolledSocket& l : looked) {
      found.push_back({.fd = l.rsocket, .events = l.events, .revents = 0});
    }
    for (const int fd : {epoll, waiter, mask.fd()}) {
      found.push_back({.fd = fd, .events = POLLIN, .revents = 0});
    }
    n = rpoll(found.data(), found.size(), MillisecondsLeft(deadline));
    lock.lock();
    if (n < 0) break;
    if (found[looked.size() + 1].revents != 0) Clear(waiter);
    n = Report(epoll, *instance, looked, found, events, max_events);
    if (n == 0 && found.back().revents != 0 && mask.Take()) {
      errno = EINTR;
      n = -1;
    }
  } while (n == 0 && !IsOver(deadline) && !instance->sockets.empty());
  const auto at =
      std::find(instance->waiting.begin(), instance->waiting.end(), waiter);
  if (at != instance->waiting.end()) instance->waiting.erase(at);
  instance->spare.push_back(waiter);
  return n;
}

// A thread that waits in the kernel. The lock is not held.
class KernelWait {
 public:
  explicit KernelWait(int epoll) : epoll_(epoll) {
    if (counted()) ++in_kernel[epoll_];
  }
  ~KernelWait() {
    if (counted()) --in_kernel[epoll_];
  }
  KernelWait(const KernelWait&) = delete;
  KernelWait& operator=(const KernelWait&) = delete;

 private:
  bool counted() const { return epoll_ >= 0 && epoll_ < kMaxDescriptors; }
  const int epoll_;
};

// Removes our own events from those of the kernel. The lock is not held.
int ProgramEvents(int epoll, epoll_event* events, int count) {
  if (count <= 0) return count;
  const int left = WithoutNews(events, count);
  if (left == count) return count;
  const std::lock_guard<std::mutex> lock(AllEpolls().mutex);
  const std::shared_ptr<Instance> instance = FindEpoll(epoll);
  if (instance != nullptr) HeardNews(*instance);
  return left;
}

// `wait_in_kernel()` waits for the kernel's instance alone until the deadline.
template <typename WaitInKernel>
int Wait(int epoll, epoll_event* events, int max_events,
         const Deadline& deadline, const sigset_t* mask,
         WaitInKernel wait_in_kernel) {
  for (;;) {
    int n = 0;
    bool waited = false;
    {
      const KernelWait wait(epoll);
      if (!HasRsockets(epoll)) {
        n = wait_in_kernel();
        waited = true;
      }
    }
    if (waited) {
      n = ProgramEvents(epoll, events, n);
    } else if (max_events <= 0) {
      errno = EINVAL;
      return -1;
    } else {
      WaitMask wait_mask(mask);
      n = wait_mask.ok()
              ? WaitBeside(epoll, events, max_events, deadline, wait_mask)
              : -1;
    }
    if (n != 0 || IsOver(deadline)) return n;
  }
}

}  // namespace
}  // namespace rspreload

PRELOADED int epoll_pwait(int epoll, epoll_event* events, int max_events,
                          int timeout, const sigset_t* mask) {
  const rspreload::Deadline deadline = rspreload::DeadlineOf(timeout);
  return rspreload::Wait(epoll, events, max_events, deadline, mask, [&] {
    return REAL(epoll_pwait)(epoll, events, max_events,
                             rspreload::MillisecondsLeft(deadline), mask);
  });
}

PRELOADED int epoll_wait(int epoll, epoll_event* events, int max_events,
                         int timeout) {
  return epoll_pwait(epoll, events, max_events, timeout, nullptr);
}

PRELOADED int epoll_pwait2(int epoll, epoll_event* events, int max_events,
                           const timespec* timeout, const sigset_t* mask) {
  const rspreload::Deadline deadline = rspreload::DeadlineOf(timeout);
  return rspreload::Wait(epoll, events, max_events, deadline, mask, [&] {
    timespec left = {};
    if (timeout != nullptr) left = rspreload::TimeLeft(deadline);
    return REAL(epoll_pwait2)(epoll, events, max_events,
                              timeout != nullptr ? &left : nullptr, mask);
  });
}
