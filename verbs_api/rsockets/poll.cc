#include "verbs_api/rsockets/poll.h"

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"

namespace rsockets {
namespace {

// One call of rpoll.
class PollCall {
 public:
  PollCall(pollfd* fds, nfds_t count) : fds_(fds), count_(count) {
    sockets_.resize(count);
    for (nfds_t i = 0; i < count; ++i) {
      fds[i].revents = 0;
      if (fds[i].fd < 0) continue;
      sockets_[i] = Find(fds[i].fd);
      (sockets_[i] != nullptr ? has_sockets_ : has_others_) = true;
    }
  }

  bool has_sockets() const { return has_sockets_; }

  // Sets the sockets' events. Returns how many sockets have any.
  int CheckSockets() {
    int ready = 0;
    for (nfds_t i = 0; i < count_; ++i) {
      if (sockets_[i] == nullptr) continue;
      fds_[i].revents = sockets_[i]->Poll(fds_[i].events);
      ready += fds_[i].revents != 0;
    }
    return ready;
  }

  // Waits for all descriptors. Returns 0 or a negative errno value.
  int Wait(Waiter* waiter, const Deadline& deadline);
  // Sets the events of ordinary descriptors without waiting. Returns how many
  // have any.
  int CheckOthers();
  // Takes the sockets' notifications without waiting.
  void ClearNotifications();

 private:
  void Begin(Waiter* waiter);
  void End(Waiter* waiter);

  pollfd* const fds_;
  const nfds_t count_;
  // Null: an ordinary descriptor.
  std::vector<std::shared_ptr<Socket>> sockets_;
  std::vector<pollfd> waited_;  // and the waiter's descriptor
  bool has_sockets_ = false;
  bool has_others_ = false;
};

void PollCall::Begin(Waiter* waiter) {
  waited_.assign(fds_, fds_ + count_);
  for (nfds_t i = 0; i < count_; ++i) {
    waited_[i].revents = 0;
    if (sockets_[i] == nullptr) continue;
    waited_[i].events = POLLIN;
    sockets_[i]->BeginWait(waiter);
  }
  waited_.push_back({.fd = waiter->fd(), .events = POLLIN, .revents = 0});
}

void PollCall::End(Waiter* waiter) {
  for (nfds_t i = 0; i < count_; ++i) {
    if (sockets_[i] == nullptr) continue;
    sockets_[i]->EndWait(waiter, waited_[i].revents != 0);
  }
  if (waited_[count_].revents != 0) waiter->Clear();
}

int PollCall::Wait(Waiter* waiter, const Deadline& deadline) {
  absl::Cleanup cancel = [&] {
    for (const std::shared_ptr<Socket>& socket : sockets_) {
      if (socket != nullptr) socket->CancelWait(waiter);
    }
  };
  Begin(waiter);
  int n = 0;
  // Events before Begin do not wake this thread, so check once more.
  if (CheckSockets() == 0) {
    n = poll(waited_.data(), count_ + 1, PollTimeout(deadline));
    if (n < 0) n = -errno;
  }
  End(waiter);
  std::move(cancel).Cancel();
  return n < 0 ? n : 0;
}

int PollCall::CheckOthers() {
  if (!has_others_) return 0;
  waited_.assign(fds_, fds_ + count_);
  for (nfds_t i = 0; i < count_; ++i) {
    if (sockets_[i] != nullptr) waited_[i].fd = -1;
  }
  const int n = poll(waited_.data(), count_, 0);
  if (n < 0) return -errno;
  for (nfds_t i = 0; i < count_; ++i) {
    if (sockets_[i] == nullptr) fds_[i].revents = waited_[i].revents;
  }
  return n;
}

void PollCall::ClearNotifications() {
  waited_.assign(fds_, fds_ + count_);
  for (nfds_t i = 0; i < count_; ++i) {
    if (sockets_[i] == nullptr) waited_[i].fd = -1;
    waited_[i].events = POLLIN;
  }
  if (poll(waited_.data(), count_, 0) <= 0) return;
  for (nfds_t i = 0; i < count_; ++i) {
    if (sockets_[i] != nullptr && waited_[i].revents != 0) {
      sockets_[i]->ClearNotifications();
    }
  }
}

// The poll(2) events that select(2) reports.
constexpr short kReadable = POLLIN | POLLRDNORM | POLLHUP | POLLERR;
constexpr short kWritable = POLLOUT | POLLWRNORM | POLLERR;

int Report(fd_set* set, const pollfd& fd, short events) {
  if (set == nullptr) return 0;
  if (!FD_ISSET(fd.fd, set)) return 0;
  if ((fd.revents & events) != 0) return 1;
  FD_CLR(fd.fd, set);
  return 0;
}

}  // namespace

int Poll(pollfd* fds, nfds_t count, const Deadline& deadline,
         const std::function<bool()>& give_up) {
  PollCall call(fds, count);
  if (!call.has_sockets() && give_up == nullptr) {
    const int n = poll(fds, count, PollTimeout(deadline));
    return n < 0 ? -errno : n;
  }
  // A waiting call consumes notifications. A call that does not wait must
  // consume them too.
  bool cleared = false;
  for (;;) {
    const int sockets = call.CheckSockets();
    const int others = call.CheckOthers();
    if (others < 0) return others;
    if (sockets + others > 0) return sockets + others;
    if (deadline.has_value() && *deadline <= Clock::now()) {
      if (cleared) return 0;
      cleared = true;
      call.ClearNotifications();
      continue;
    }
    if (give_up != nullptr && give_up()) return 0;
    Waiter* const waiter = Waiter::OfThisThread();
    if (waiter == nullptr) return -ENOMEM;
    if (const int error = call.Wait(waiter, deadline)) return error;
    cleared = true;
  }
}

int Select(int count, fd_set* read, fd_set* write, fd_set* except,
           const Deadline& deadline) {
  if (count < 0 || count > FD_SETSIZE) return -EINVAL;
  std::vector<pollfd> fds;
  for (int fd = 0; fd < count; ++fd) {
    short events = 0;
    if (read != nullptr && FD_ISSET(fd, read)) events |= POLLIN;
    if (write != nullptr && FD_ISSET(fd, write)) events |= POLLOUT;
    if (except != nullptr && FD_ISSET(fd, except)) events |= POLLPRI;
    if (events != 0) fds.push_back({.fd = fd, .events = events, .revents = 0});
  }
  int n = Poll(fds.data(), fds.size(), deadline);
  if (n < 0) return n;
  n = 0;
  for (const pollfd& fd : fds) {
    if ((fd.revents & POLLNVAL) != 0) return -EBADF;
  }
  for (const pollfd& fd : fds) {
    n += Report(read, fd, kReadable) + Report(write, fd, kWritable) +
         Report(except, fd, POLLPRI);
  }
  return n;
}

}  // namespace rsockets
