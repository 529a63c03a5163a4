#include "verbs_api/rsockets/socket.h"

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "rxe_user/base/fork_guard.h"
#include "rxe_user/base/only_one.h"

namespace rsockets {
namespace {

struct Table {
  rxe_user::ForkSafeSharedMutex mutex;
  std::unordered_map<int, std::shared_ptr<Socket>> sockets;
};

Table& Sockets() { return rxe_user::OnlyOne<Table>(); }

// At exit, closes all connections in order, as the kernel does for TCP: our
// connection manager ends with the process.
__attribute__((destructor)) void CloseAll() {
  std::unordered_map<int, std::shared_ptr<Socket>> sockets;
  {
    Table& table = Sockets();
    std::lock_guard<rxe_user::ForkSafeSharedMutex> lock(table.mutex);
    // They stay in the table, with open descriptors: other threads may still
    // use them.
    sockets = table.sockets;
  }
  std::erase_if(sockets,
                [](const auto& item) { return !item.second->is_ours(); });
  // Announces the end on all connections first, so that they drain in parallel.
  for (const auto& [fd, socket] : sockets) socket->AnnounceClose();
  // All share one deadline.
  const Clock::time_point begin = Clock::now();
  for (const auto& [fd, socket] : sockets) socket->Close(begin);
}

}  // namespace

std::shared_ptr<Socket> Find(int fd) {
  Table& table = Sockets();
  std::shared_lock<rxe_user::ForkSafeSharedMutex> lock(table.mutex);
  const auto found = table.sockets.find(fd);
  return found == table.sockets.end() ? nullptr : found->second;
}

int Publish(std::shared_ptr<Socket> socket) {
  const int fd = socket->fd();
  {
    Table& table = Sockets();
    std::lock_guard<rxe_user::ForkSafeSharedMutex> lock(table.mutex);
    socket.swap(table.sockets[fd]);
  }
  // An older socket, whose number the program has closed with close(2).
  if (socket == nullptr) return fd;
  if (socket->is_ours()) {
    socket->OnNumberReused();
  } else {
    // Never destroyed: in a child of fork, the numbers of its other descriptors
    // may be other files'.
    new std::shared_ptr<Socket>(std::move(socket));
  }
  return fd;
}

std::shared_ptr<Socket> Withdraw(int fd) {
  Table& table = Sockets();
  std::lock_guard<rxe_user::ForkSafeSharedMutex> lock(table.mutex);
  const auto found = table.sockets.find(fd);
  if (found == table.sockets.end()) return nullptr;
  std::shared_ptr<Socket> socket = std::move(found->second);
  table.sockets.erase(found);
  return socket;
}

Deadline DeadlineIn(const timeval& timeout) {
  constexpr time_t kMax = time_t{100} * 365 * 24 * 3600;
  constexpr time_t kMicroseconds = 1'000'000;
  if (timeout.tv_sec > kMax || timeout.tv_usec / kMicroseconds > kMax) {
    return std::nullopt;
  }
  // A negative timeout is over at once.
  return Clock::now() +
         std::chrono::seconds(std::max<time_t>(timeout.tv_sec, 0)) +
         std::chrono::microseconds(std::max<suseconds_t>(timeout.tv_usec, 0));
}

int PollTimeout(const Deadline& deadline) {
  if (!deadline.has_value()) return -1;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, INT32_MAX));
}

Socket::Socket(int domain, const Settings& settings)
    : settings_(settings), domain_(domain), pid_(getpid()) {}

bool Socket::is_ours() const { return pid_ == getpid(); }

int Socket::Open() {
  epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  return epoll_.valid() ? 0 : -errno;
}

int Socket::Watch(int fd) {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.fd = fd;
  return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : -errno;
}

void Socket::Unwatch(int fd) {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void Socket::WakeAll(const Waiter* self) {
  for (Waiter* const waiter : waiters_) {
    if (waiter != self) waiter->Wake();
  }
}

void Socket::MakeProgress(const Waiter* self) {
  if (Progress() && !waiters_.empty()) WakeAll(self);
}

void Socket::DrainAndProgress(const Waiter* self) {
  if (Drain()) WakeAll(self);
  MakeProgress(self);
}

bool Socket::nonblocking(int message_flags) const {
  return (flags_ & O_NONBLOCK) != 0 || (message_flags & MSG_DONTWAIT) != 0;
}

Deadline Socket::After(const timeval& timeout) {
  if (timeout.tv_sec == 0 && timeout.tv_usec == 0) return std::nullopt;
  return DeadlineIn(timeout);
}

int Socket::WaitFor(Waiter& waiter, const Deadline& deadline, bool* readable) {
  pollfd fds[] = {{.fd = epoll_.get(), .events = POLLIN, .revents = 0},
                  {.fd = waiter.fd(), .events = POLLIN, .revents = 0}};
  const int n = poll(fds, 2, PollTimeout(deadline));
  if (n < 0) return -errno;
  *readable = fds[0].revents != 0;
  if (fds[1].revents != 0) waiter.Clear();
  return n == 0 ? -EAGAIN : 0;
}

void Socket::Forget(Waiter* waiter) { std::erase(waiters_, waiter); }

void Socket::OnNumberReused() {
  std::lock_guard<std::mutex> lock(mutex_);
  static_cast<void>(epoll_.Release());
  closed_ = true;
  WakeAll(nullptr);
}

void Socket::ClearNotifications() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!closed_) DrainAndProgress();
}

short Socket::Poll(short events) {
  if (!is_ours()) return POLLNVAL;
  std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) return POLLNVAL;
  MakeProgress(Waiter::OfThisThread());
  return static_cast<short>(Ready() & (events | POLLERR | POLLHUP));
}

void Socket::BeginWait(Waiter* waiter) {
  std::lock_guard<std::mutex> lock(mutex_);
  waiters_.push_back(waiter);
  Arm();
}

void Socket::EndWait(Waiter* waiter, bool readable) {
  std::lock_guard<std::mutex> lock(mutex_);
  Forget(waiter);
  if (readable) {
    DrainAndProgress(waiter);
  } else {
    MakeProgress(waiter);
  }
}

void Socket::CancelWait(Waiter* waiter) {
  std::lock_guard<std::mutex> lock(mutex_);
  Forget(waiter);
}

int Socket::flags() {
  std::lock_guard<std::mutex> lock(mutex_);
  return flags_;
}

int Socket::SetFlags(int flags) {
  std::lock_guard<std::mutex> lock(mutex_);
  flags_ = (flags & ~O_ACCMODE) | O_RDWR;
  return 0;
}

}  // namespace rsockets
