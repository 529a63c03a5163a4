#include "verbs_api/rsockets/epoll.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "rxe_user/base/fork_guard.h"
#include "rxe_user/base/only_one.h"
#include "verbs_api/rsockets/poll.h"

namespace rsockets {
namespace {

constexpr uint32_t kFlags =
    EPOLLET | EPOLLONESHOT | EPOLLWAKEUP | EPOLLEXCLUSIVE;

struct Instances {
  rxe_user::ForkSafeMutex mutex;
  std::map<int, std::shared_ptr<Epoll>> map;
};
Instances& All() { return rxe_user::OnlyOne<Instances>(); }

}  // namespace

int Epoll::Create(int flags) {
  // rdma-core accepts O_NONBLOCK too. It has no effect here.
  if ((flags & ~(EPOLL_CLOEXEC | O_NONBLOCK)) != 0) return -EINVAL;
  auto epoll = std::make_shared<Epoll>();
  epoll->kernel_.Reset(epoll_create1(flags & EPOLL_CLOEXEC));
  if (!epoll->kernel_.valid()) return -errno;
  const int fd = epoll->kernel_.get();
  {
    Instances& all = All();
    std::lock_guard<rxe_user::ForkSafeMutex> lock(all.mutex);
    epoll.swap(all.map[fd]);
  }
  // close(2) of an instance frees its number for reuse. An instance of the
  // process that forked this one stays untouched: its threads may have held the
  // lock.
  if (epoll != nullptr && !epoll->is_ours()) {
    static_cast<void>(epoll->kernel_.Release());
  } else if (epoll != nullptr) {
    std::lock_guard<std::mutex> lock(epoll->mutex_);
    static_cast<void>(epoll->kernel_.Release());
    epoll->closed_ = true;
    epoll->WakeAll();
  }
  return fd;
}

bool Epoll::is_ours() const { return pid_ == getpid(); }

std::shared_ptr<Epoll> Epoll::Find(int fd) {
  Instances& all = All();
  std::lock_guard<rxe_user::ForkSafeMutex> lock(all.mutex);
  const auto found = all.map.find(fd);
  return found == all.map.end() || !found->second->is_ours() ? nullptr
                                                             : found->second;
}

int Epoll::Close(int fd) {
  std::shared_ptr<Epoll> epoll;
  {
    Instances& all = All();
    std::lock_guard<rxe_user::ForkSafeMutex> lock(all.mutex);
    const auto found = all.map.find(fd);
    if (found == all.map.end()) return -EBADF;
    epoll = std::move(found->second);
    all.map.erase(found);
  }
  if (!epoll->is_ours()) return 0;
  std::lock_guard<std::mutex> lock(epoll->mutex_);
  epoll->closed_ = true;
  epoll->WakeAll();
  return 0;
}

int Epoll::Control(int operation, int fd, const epoll_event* event) {
  if (fd == kernel_.get()) return -EINVAL;
  if (operation != EPOLL_CTL_DEL && event == nullptr) return -EFAULT;
  if (const std::shared_ptr<Socket> socket = rsockets::Find(fd)) {
    return ControlSocket(operation, socket, event);
  }
  // Waiters in the kernel see the change by themselves. The cast is needed
  // because the declaration of epoll_ctl is not const.
  epoll_event copy = event != nullptr ? *event : epoll_event{};
  return epoll_ctl(kernel_.get(), operation, fd, &copy) == 0 ? 0 : -errno;
}

int Epoll::ControlSocket(int operation, const std::shared_ptr<Socket>& socket,
                         const epoll_event* event) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = sockets_.find(socket->fd());
  const bool known =
      found != sockets_.end() && found->second.socket.lock() == socket;
  switch (operation) {
    case EPOLL_CTL_ADD:
      if (known) return -EEXIST;
      break;
    case EPOLL_CTL_MOD:
    case EPOLL_CTL_DEL:
      if (!known) return -ENOENT;
      break;
    default:
      return -EINVAL;
  }
  if (operation == EPOLL_CTL_DEL) {
    sockets_.erase(found);
  } else {
    sockets_[socket->fd()] = {.socket = socket, .event = *event};
  }
  WakeAll();
  return 0;
}

// `mutex_` is held.
void Epoll::WakeAll() {
  ++generation_;
  for (Waiter* waiter : waiters_) waiter->Wake();
}

// Collects the watched sockets, with the kernel's instance at the end. Returns
// 0 or a negative errno value. `mutex_` is held.
int Epoll::Collect(std::vector<pollfd>* fds, uint64_t* generation) {
  if (closed_) return -EBADF;
  fds->clear();
  for (auto at = sockets_.begin(); at != sockets_.end();) {
    const std::shared_ptr<Socket> socket = at->second.socket.lock();
    if (socket == nullptr || rsockets::Find(at->first) != socket) {
      at = sockets_.erase(at);
      continue;
    }
    const uint32_t wanted = at->second.event.events;
    // Only flags are left: EPOLLONESHOT has reported it.
    if ((wanted & ~kFlags) != 0) {
      fds->push_back({.fd = at->first,
                      .events = static_cast<short>(wanted & ~kFlags),
                      .revents = 0});
    }
    ++at;
  }
  fds->push_back({.fd = kernel_.get(), .events = POLLIN, .revents = 0});
  *generation = generation_;
  return 0;
}

// Reports the result of Poll for a socket. Returns 0 if another thread has
// reported it or changed the events, else 1. `mutex_` is held.
int Epoll::ReportSocket(const pollfd& fd, epoll_event* event) {
  const auto at = sockets_.find(fd.fd);
  if (fd.revents == 0 || at == sockets_.end()) return 0;
  epoll_event& watched = at->second.event;
  const uint32_t ready =
      static_cast<uint16_t>(fd.revents) & (watched.events | POLLERR | POLLHUP);
  if (ready == 0 || (watched.events & ~kFlags) == 0) return 0;
  event->events = ready;
  event->data = watched.data;
  if ((watched.events & EPOLLONESHOT) != 0) watched.events &= kFlags;
  return 1;
}

// Turns the results of Poll into events. Returns their number or a negative
// errno value. `mutex_` is held.
int Epoll::Report(const std::vector<pollfd>& fds, epoll_event* events,
                  int max_events) {
  const auto kernel = fds.end() - 1;
  const auto first = std::upper_bound(
      fds.begin(), kernel, last_,
      [](int fd, const pollfd& other) { return fd < other.fd; });
  const auto offset = static_cast<size_t>(first - fds.begin());
  int n = 0;
  for (size_t i = 0; i < fds.size() && n < max_events; ++i) {
    const pollfd& fd = fds[(offset + i) % fds.size()];
    int got = 0;
    if (&fd != &*kernel) {
      got = ReportSocket(fd, events + n);
    } else if (fd.revents != 0) {
      got = epoll_wait(kernel_.get(), events + n, max_events - n, 0);
      if (got < 0) return n > 0 ? n : -errno;
    }
    if (got > 0) last_ = &fd == &*kernel ? -1 : fd.fd;
    n += got;
  }
  return n;
}

int Epoll::Wait(epoll_event* events, int max_events, const Deadline& deadline) {
  Waiter* const waiter = Waiter::OfThisThread();
  if (waiter == nullptr) return -EMFILE;
  std::unique_lock<std::mutex> lock(mutex_);
  waiters_.push_back(waiter);
  int n;
  try {
    n = WaitAs(lock, events, max_events, deadline);
  } catch (...) {
    n = -ENOMEM;
  }
  if (!lock.owns_lock()) lock.lock();
  waiters_.erase(std::find(waiters_.begin(), waiters_.end(), waiter));
  return n;
}

// `lock` is held. The waiter of this thread is in `waiters_`.
int Epoll::WaitAs(std::unique_lock<std::mutex>& lock, epoll_event* events,
                  int max_events, const Deadline& deadline) {
  std::vector<pollfd> fds;
  uint64_t seen = 0;
  for (;;) {
    if (const int error = Collect(&fds, &seen)) return error;
    lock.unlock();
    const int ready = Poll(fds.data(), fds.size(), deadline, [&] {
      std::lock_guard<std::mutex> look(mutex_);
      return generation_ != seen;
    });
    lock.lock();
    if (ready < 0) return ready;
    // The result may be older than the change, or reported by another thread.
    if (generation_ != seen) continue;
    if (ready == 0) return 0;
    const int n = Report(fds, events, max_events);
    if (n != 0) return n;
    // Another thread has reported everything.
  }
}

}  // namespace rsockets
