// poll(2) and select(2) on rsockets and other descriptors.
#include <poll.h>
#include <rdma/rsocket.h>
#include <signal.h>
#include <sys/select.h>

#include <cerrno>
#include <memory>
#include <vector>

#include "verbs_api/rsockets/preload/fork.h"
#include "verbs_api/rsockets/preload/real.h"
#include "verbs_api/rsockets/preload/table.h"
#include "verbs_api/rsockets/preload/waiting.h"

extern "C" {
int __poll_chk(pollfd*, nfds_t, int, size_t);
int __ppoll_chk(pollfd*, nfds_t, const timespec*, const sigset_t*, size_t);
}

namespace rspreload {
namespace {

bool HasRsocket(const pollfd* fds, nfds_t count) {
  for (nfds_t i = 0; i < count; ++i) {
    if (Behind(fds[i].fd) >= 0) return true;
  }
  return false;
}

// `mask`: as in ppoll(2); may be null.
int PollAll(pollfd* fds, nfds_t count, const Deadline& deadline,
            const sigset_t* mask) {
  WaitMask wait_mask(mask);
  if (!wait_mask.ok()) return -1;
  std::vector<pollfd> inner;
  inner.reserve(count + 2);
  for (;;) {
    const std::shared_ptr<HandoverNews> handover = NextHandover();
    inner.assign(fds, fds + count);
    for (pollfd& fd : inner) {
      const int rsocket = Behind(fd.fd);
      if (rsocket >= 0) fd.fd = rsocket;
    }
    for (const int fd :
         {wait_mask.fd(), handover != nullptr ? handover->fd : -1}) {
      inner.push_back({.fd = fd, .events = POLLIN, .revents = 0});
    }
    int n = rpoll(inner.data(), inner.size(), MillisecondsLeft(deadline));
    if (n < 0) return n;
    // The descriptor now has another file behind it.
    if (inner[count + 1].revents != 0) continue;
    const bool signaled = inner[count].revents != 0;
    if (signaled && --n == 0) {
      if (wait_mask.Take()) {
        errno = EINTR;
        return -1;
      }
      if (!IsOver(deadline)) continue;  // an ignored signal
    }
    for (nfds_t i = 0; i < count; ++i) fds[i].revents = inner[i].revents;
    return n;
  }
}

bool IsSet(int fd, const fd_set* set) {
  return set != nullptr && FD_ISSET(fd, set);
}

constexpr short kReadable = POLLIN | POLLRDNORM | POLLHUP | POLLERR;
constexpr short kWritable = POLLOUT | POLLWRNORM | POLLERR;

// The descriptors in the sets if any of them has an rsocket; else empty.
std::vector<pollfd> Collect(int count, const fd_set* read, const fd_set* write,
                            const fd_set* except) {
  std::vector<pollfd> fds;
  bool has_rsocket = false;
  for (int fd = 0; fd < count && fd < FD_SETSIZE; ++fd) {
    short events = 0;
    if (IsSet(fd, read)) events |= POLLIN;
    if (IsSet(fd, write)) events |= POLLOUT;
    if (IsSet(fd, except)) events |= POLLPRI;
    if (events == 0) continue;
    fds.push_back({.fd = fd, .events = events, .revents = 0});
    has_rsocket |= Behind(fd) >= 0;
  }
  if (!has_rsocket) fds.clear();
  return fds;
}

int Report(fd_set* set, const pollfd& fd, short events) {
  if (!IsSet(fd.fd, set)) return 0;
  if ((fd.revents & events) != 0) return 1;
  FD_CLR(fd.fd, set);
  return 0;
}

int SelectAll(std::vector<pollfd>& fds, fd_set* read, fd_set* write,
              fd_set* except, const Deadline& deadline, const sigset_t* mask) {
  int n = PollAll(fds.data(), fds.size(), deadline, mask);
  if (n < 0) return n;
  n = 0;
  for (const pollfd& fd : fds) {
    if ((fd.revents & POLLNVAL) != 0) {
      errno = EBADF;
      return -1;
    }
    n += Report(read, fd, kReadable) + Report(write, fd, kWritable) +
         Report(except, fd, POLLPRI);
  }
  return n;
}

}  // namespace
}  // namespace rspreload

PRELOADED int poll(pollfd* fds, nfds_t count, int timeout) {
  if (!rspreload::HasRsocket(fds, count)) {
    return REAL(poll)(fds, count, timeout);
  }
  return rspreload::PollAll(fds, count, rspreload::DeadlineOf(timeout),
                            nullptr);
}

PRELOADED int __poll_chk(pollfd* fds, nfds_t count, int timeout, size_t size) {
  if (!rspreload::HasRsocket(fds, count)) {
    return REAL(__poll_chk)(fds, count, timeout, size);
  }
  return rspreload::PollAll(fds, count, rspreload::DeadlineOf(timeout),
                            nullptr);
}

PRELOADED int ppoll(pollfd* fds, nfds_t count, const timespec* timeout,
                    const sigset_t* mask) {
  if (!rspreload::HasRsocket(fds, count)) {
    return REAL(ppoll)(fds, count, timeout, mask);
  }
  return rspreload::PollAll(fds, count, rspreload::DeadlineOf(timeout), mask);
}

PRELOADED int __ppoll_chk(pollfd* fds, nfds_t count, const timespec* timeout,
                          const sigset_t* mask, size_t size) {
  if (!rspreload::HasRsocket(fds, count)) {
    return REAL(__ppoll_chk)(fds, count, timeout, mask, size);
  }
  return ppoll(fds, count, timeout, mask);
}

PRELOADED int select(int count, fd_set* read, fd_set* write, fd_set* except,
                     timeval* timeout) {
  std::vector<pollfd> fds = rspreload::Collect(count, read, write, except);
  if (fds.empty()) return REAL(select)(count, read, write, except, timeout);
  timespec time = {};
  if (timeout != nullptr) {
    time = {.tv_sec = timeout->tv_sec, .tv_nsec = timeout->tv_usec * 1000};
  }
  return rspreload::SelectAll(
      fds, read, write, except,
      rspreload::DeadlineOf(timeout != nullptr ? &time : nullptr), nullptr);
}

PRELOADED int pselect(int count, fd_set* read, fd_set* write, fd_set* except,
                      const timespec* timeout, const sigset_t* mask) {
  std::vector<pollfd> fds = rspreload::Collect(count, read, write, except);
  if (fds.empty()) {
    return REAL(pselect)(count, read, write, except, timeout, mask);
  }
  return rspreload::SelectAll(fds, read, write, except,
                              rspreload::DeadlineOf(timeout), mask);
}
