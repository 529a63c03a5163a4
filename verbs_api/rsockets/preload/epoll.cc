// An epoll instance of the kernel has the ordinary descriptors. The rsockets
// that the program adds to it are kept beside it, and waiting polls both.
#include "verbs_api/rsockets/preload/epoll.h"

#include <poll.h>
#include <rdma/rsocket.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>
#include <vector>

#include "verbs_api/rsockets/preload/real.h"
#include "verbs_api/rsockets/preload/table.h"

namespace rspreload {
namespace {

constexpr uint32_t kFlags =
    EPOLLET | EPOLLONESHOT | EPOLLWAKEUP | EPOLLEXCLUSIVE;

struct Watched {
  epoll_event event;
  uint32_t reported = 0;  // edge-triggered: what the program knows already
};

// By epoll instance: its rsockets, by the program's descriptor.
using Instance = std::map<int, Watched>;
struct Instances {
  std::mutex mutex;
  std::map<int, Instance> map;
};

Instances& All() {
  static auto* const instances = new Instances;
  return *instances;
}

// So that programs without rsockets in epoll pay nothing.
std::atomic<int> instance_count{0};

int Change(int epoll, int operation, int fd, const epoll_event* event) {
  Instances& all = All();
  std::lock_guard<std::mutex> lock(all.mutex);
  Instance& instance = all.map[epoll];
  instance_count.store(static_cast<int>(all.map.size()));
  const bool known = instance.count(fd) != 0;
  switch (operation) {
    case EPOLL_CTL_ADD:
      if (known) return EEXIST;
      break;
    case EPOLL_CTL_MOD:
      if (!known) return ENOENT;
      break;
    case EPOLL_CTL_DEL:
      return instance.erase(fd) != 0 ? 0 : ENOENT;
    default:
      return EINVAL;
  }
  if (event == nullptr) return EFAULT;
  instance[fd] = {.event = *event, .reported = 0};
  return 0;
}

// The rsockets of an instance that are waited for.
std::vector<pollfd> Collect(int epoll) {
  std::vector<pollfd> fds;
  Instances& all = All();
  std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.map.find(epoll);
  if (found == all.map.end()) return fds;
  for (auto& [fd, watched] : found->second) {
    const int rsocket = Behind(fd);
    if (rsocket < 0) continue;
    const uint32_t used = TakeUsed(rsocket);
    watched.reported &= ~used;
    uint32_t wanted = watched.event.events & ~kFlags;
    if ((watched.event.events & EPOLLET) != 0) wanted &= ~watched.reported;
    if (wanted == 0) continue;  // reported, and not used since
    fds.push_back(
        {.fd = fd, .events = static_cast<short>(wanted), .revents = 0});
  }
  return fds;
}

// Turns what rpoll has found into events: how many.
int Report(int epoll, const std::vector<pollfd>& fds, epoll_event* events,
           int most) {
  Instances& all = All();
  std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.map.find(epoll);
  if (found == all.map.end()) return 0;
  int n = 0;
  for (const pollfd& fd : fds) {
    if (fd.revents == 0 || n == most) continue;
    const auto at = found->second.find(fd.fd);
    if (at == found->second.end()) continue;
    Watched& watched = at->second;
    const auto ready = static_cast<uint32_t>(fd.revents);
    watched.reported |= ready;
    events[n].events = ready;
    events[n].data = watched.event.data;
    ++n;
    if ((watched.event.events & EPOLLONESHOT) != 0) {
      watched.event.events &= kFlags;
    }
  }
  return n;
}

int Wait(int epoll, epoll_event* events, int most, int timeout) {
  if (most <= 0) {
    errno = EINVAL;
    return -1;
  }
  std::vector<pollfd> fds = Collect(epoll);
  std::vector<pollfd> inner = fds;
  for (pollfd& fd : inner) fd.fd = Behind(fd.fd);
  inner.push_back({.fd = epoll, .events = POLLIN, .revents = 0});
  if (rpoll(inner.data(), inner.size(), timeout) < 0) return -1;
  for (size_t i = 0; i < fds.size(); ++i) fds[i].revents = inner[i].revents;
  const int n = Report(epoll, fds, events, most);
  if (n == most || inner.back().revents == 0) return n;
  const int others = REAL(epoll_wait)(epoll, events + n, most - n, 0);
  return others < 0 ? (n > 0 ? n : -1) : n + others;
}

bool HasRsockets(int epoll) {
  if (instance_count.load(std::memory_order_relaxed) == 0) return false;
  Instances& all = All();
  std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.map.find(epoll);
  return found != all.map.end() && !found->second.empty();
}

}  // namespace

void ForgetEpoll(int fd) {
  if (instance_count.load(std::memory_order_relaxed) == 0) return;
  Instances& all = All();
  std::lock_guard<std::mutex> lock(all.mutex);
  all.map.erase(fd);
  for (auto& [epoll, instance] : all.map) instance.erase(fd);
  instance_count.store(static_cast<int>(all.map.size()));
}

void LockEpollForFork() { All().mutex.lock(); }
void UnlockEpollAfterFork() { All().mutex.unlock(); }

}  // namespace rspreload

PRELOADED int epoll_ctl(int epoll, int operation, int fd,
                        epoll_event* event) noexcept {
  if (rspreload::Behind(fd) < 0) {
    return REAL(epoll_ctl)(epoll, operation, fd, event);
  }
  const int error = rspreload::Change(epoll, operation, fd, event);
  if (error == 0) return 0;
  errno = error;
  return -1;
}

PRELOADED int epoll_wait(int epoll, epoll_event* events, int most,
                         int timeout) {
  if (!rspreload::HasRsockets(epoll)) {
    return REAL(epoll_wait)(epoll, events, most, timeout);
  }
  return rspreload::Wait(epoll, events, most, timeout);
}

PRELOADED int epoll_pwait(int epoll, epoll_event* events, int most, int timeout,
                          const sigset_t* mask) {
  if (!rspreload::HasRsockets(epoll)) {
    return REAL(epoll_pwait)(epoll, events, most, timeout, mask);
  }
  sigset_t before;
  if (mask != nullptr) pthread_sigmask(SIG_SETMASK, mask, &before);
  const int n = rspreload::Wait(epoll, events, most, timeout);
  const int error = errno;
  if (mask != nullptr) pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return n;
}
