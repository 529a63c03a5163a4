// The C functions of rsocket(7).
#include <rdma/rsocket.h>

#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstring>

#include "rxe_user/base/no_cancellation.h"
#include "verbs_api/rsockets/datagram.h"
#include "verbs_api/rsockets/epoll.h"
#include "verbs_api/rsockets/poll.h"
#include "verbs_api/rsockets/socket.h"
#include "verbs_api/rsockets/stream.h"

#define RSOCKET_EXPORT extern "C" __attribute__((visibility("default")))

namespace rsockets {
namespace {

// Runs `body`, which returns a negative errno value on failure. No exception
// comes out, and the call is not a cancellation point. Returns -1 with errno on
// failure; errno is unchanged on success.
template <typename Body>
auto Call(Body&& body) noexcept -> decltype(body()) {
  const int before = errno;
  const rxe_user::NoCancellation no_cancellation;
  decltype(body()) result;
  try {
    result = body();
  } catch (...) {
    result = -ENOMEM;
  }
  errno = result >= 0 ? before : static_cast<int>(-result);
  return result >= 0 ? result : -1;
}

// The same with a socket. EBADF if there is no socket of that number, or it
// belongs to the process that forked this one.
template <typename Body>
auto SocketCall(int fd, Body&& body) noexcept {
  return Call([&]() -> decltype(body(*std::shared_ptr<Socket>())) {
    const std::shared_ptr<Socket> socket = Find(fd);
    if (socket == nullptr || !socket->is_ours()) return -EBADF;
    return body(*socket);
  });
}

// Copies as much of the address as fits.
int GiveAddress(const sockaddr_storage& from, sockaddr* to, socklen_t* length) {
  if (to == nullptr || length == nullptr) return -EFAULT;
  const socklen_t size =
      from.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  std::memcpy(to, &from, std::min(*length, size));
  *length = size;
  return 0;
}

// Checks that `length` covers an address of IPv4 or IPv6.
int CheckAddress(const sockaddr* address, socklen_t length) {
  if (address == nullptr) return -EFAULT;
  if (length < sizeof(sa_family_t)) return -EINVAL;
  switch (address->sa_family) {
    case AF_INET:
      return length >= sizeof(sockaddr_in) ? 0 : -EINVAL;
    case AF_INET6:
      return length >= sizeof(sockaddr_in6) ? 0 : -EINVAL;
    default:
      return -EAFNOSUPPORT;
  }
}

ssize_t SendOn(int fd, const iovec* iov, size_t count, int flags,
               const sockaddr* to, socklen_t length) {
  return SocketCall(fd, [&](Socket& socket) -> ssize_t {
    if (to != nullptr) {
      if (const int error = CheckAddress(to, length)) return error;
    }
    return socket.Send(IovCursor(iov, count), flags, to, length);
  });
}

ssize_t ReceiveOn(int fd, const iovec* iov, size_t count, int flags,
                  sockaddr* from, socklen_t* length) {
  return SocketCall(fd, [&](Socket& socket) -> ssize_t {
    return socket.Receive(IovCursor(iov, count), flags, from, length);
  });
}

// Checks the number of buffers: readv(2). Returns false with errno.
bool IsCount(int count) {
  if (count >= 0 && count <= IOV_MAX) return true;
  errno = EINVAL;
  return false;
}

iovec One(const void* data, size_t length) {
  return {.iov_base = const_cast<void*>(data), .iov_len = length};
}

int Create(int domain, int type, int protocol) {
  if (domain != AF_INET && domain != AF_INET6) return -EAFNOSUPPORT;
  const int flags = type & (SOCK_NONBLOCK | SOCK_CLOEXEC);
  type &= ~flags;
  std::shared_ptr<Socket> socket;
  int error;
  if (type == SOCK_STREAM && (protocol == 0 || protocol == IPPROTO_TCP)) {
    error = Stream::Create(domain, &socket);
  } else if (type == SOCK_DGRAM && (protocol == 0 || protocol == IPPROTO_UDP)) {
    error = Datagram::Create(domain, &socket);
  } else {
    return -EPROTONOSUPPORT;
  }
  if (error != 0) return error;
  if ((flags & SOCK_NONBLOCK) != 0) socket->SetFlags(O_NONBLOCK);
  return Publish(std::move(socket));
}

Deadline DeadlineOf(int timeout_ms) {
  if (timeout_ms < 0) return std::nullopt;
  return Clock::now() + std::chrono::milliseconds(timeout_ms);
}

}  // namespace

RSOCKET_EXPORT int rsocket(int domain, int type, int protocol) {
  return Call([&] { return Create(domain, type, protocol); });
}

RSOCKET_EXPORT int rbind(int fd, const sockaddr* address, socklen_t length) {
  return SocketCall(fd, [&](Socket& socket) -> int {
    if (const int error = CheckAddress(address, length)) return error;
    return socket.Bind(address, length);
  });
}

RSOCKET_EXPORT int rlisten(int fd, int backlog) {
  return SocketCall(fd, [&](Socket& socket) { return socket.Listen(backlog); });
}

RSOCKET_EXPORT int raccept(int fd, sockaddr* address, socklen_t* length) {
  return SocketCall(fd, [&](Socket& socket) -> int {
    std::shared_ptr<Socket> accepted;
    sockaddr_storage peer;
    if (const int error = socket.Accept(&accepted, &peer)) return error;
    if (address != nullptr) GiveAddress(peer, address, length);
    return Publish(std::move(accepted));
  });
}

RSOCKET_EXPORT int rconnect(int fd, const sockaddr* address, socklen_t length) {
  return SocketCall(fd, [&](Socket& socket) -> int {
    const int error = CheckAddress(address, length);
    // For datagrams, AF_UNSPEC removes the peer.
    const bool removes = error == -EAFNOSUPPORT &&
                         address->sa_family == AF_UNSPEC &&
                         socket.type() == SOCK_DGRAM;
    if (error != 0 && !removes) return error;
    return socket.Connect(address, length);
  });
}

RSOCKET_EXPORT int rshutdown(int fd, int how) {
  return SocketCall(fd, [&](Socket& socket) { return socket.Shutdown(how); });
}

RSOCKET_EXPORT int rclose(int fd) {
  return Call([&]() -> int {
    const std::shared_ptr<Socket> socket = Withdraw(fd);
    if (socket == nullptr) return Epoll::Close(fd);
    if (socket->is_ours()) socket->Close(Clock::now());
    return 0;
  });
}

RSOCKET_EXPORT ssize_t rrecv(int fd, void* data, size_t length, int flags) {
  const iovec iov = One(data, length);
  return ReceiveOn(fd, &iov, 1, flags, nullptr, nullptr);
}

RSOCKET_EXPORT ssize_t rrecvfrom(int fd, void* data, size_t length, int flags,
                                 sockaddr* from, socklen_t* from_length) {
  const iovec iov = One(data, length);
  return ReceiveOn(fd, &iov, 1, flags, from,
                   from != nullptr ? from_length : nullptr);
}

RSOCKET_EXPORT ssize_t rrecvmsg(int fd, msghdr* message, int flags) {
  const bool has_name =
      message->msg_name != nullptr && message->msg_namelen > 0;
  const ssize_t n =
      ReceiveOn(fd, message->msg_iov, message->msg_iovlen, flags,
                has_name ? static_cast<sockaddr*>(message->msg_name) : nullptr,
                has_name ? &message->msg_namelen : nullptr);
  // There are no control messages.
  message->msg_controllen = 0;
  message->msg_flags = 0;
  return n;
}

RSOCKET_EXPORT ssize_t rsend(int fd, const void* data, size_t length,
                             int flags) {
  const iovec iov = One(data, length);
  return SendOn(fd, &iov, 1, flags, nullptr, 0);
}

RSOCKET_EXPORT ssize_t rsendto(int fd, const void* data, size_t length,
                               int flags, const sockaddr* to,
                               socklen_t to_length) {
  const iovec iov = One(data, length);
  return SendOn(fd, &iov, 1, flags, to, to_length);
}

RSOCKET_EXPORT ssize_t rsendmsg(int fd, const msghdr* message, int flags) {
  if (message->msg_control != nullptr && message->msg_controllen > 0) {
    errno = EOPNOTSUPP;
    return -1;
  }
  const bool has_name =
      message->msg_name != nullptr && message->msg_namelen > 0;
  return SendOn(
      fd, message->msg_iov, message->msg_iovlen, flags,
      has_name ? static_cast<const sockaddr*>(message->msg_name) : nullptr,
      message->msg_namelen);
}

RSOCKET_EXPORT ssize_t rread(int fd, void* data, size_t length) {
  return rrecv(fd, data, length, 0);
}

RSOCKET_EXPORT ssize_t rreadv(int fd, const iovec* iov, int count) {
  if (!IsCount(count)) return -1;
  return ReceiveOn(fd, iov, static_cast<size_t>(count), 0, nullptr, nullptr);
}

RSOCKET_EXPORT ssize_t rwrite(int fd, const void* data, size_t length) {
  return rsend(fd, data, length, 0);
}

RSOCKET_EXPORT ssize_t rwritev(int fd, const iovec* iov, int count) {
  if (!IsCount(count)) return -1;
  return SendOn(fd, iov, static_cast<size_t>(count), 0, nullptr, 0);
}

RSOCKET_EXPORT int rpoll(pollfd* fds, nfds_t count, int timeout) {
  return Call([&] { return Poll(fds, count, DeadlineOf(timeout)); });
}

RSOCKET_EXPORT int rselect(int count, fd_set* read, fd_set* write,
                           fd_set* except, timeval* timeout) {
  return Call([&] {
    return Select(count, read, write, except,
                  timeout != nullptr ? DeadlineIn(*timeout) : std::nullopt);
  });
}

// Reports errors in errno, like epoll(7). rdma-core returns the positive errno
// value, which for repoll_wait looks like a number of events.
RSOCKET_EXPORT int repoll_create(int flags) {
  return Call([&] { return Epoll::Create(flags); });
}

RSOCKET_EXPORT int repoll_ctl(int epoll, int operation, int fd,
                              epoll_event* event) {
  return Call([&]() -> int {
    const std::shared_ptr<Epoll> instance = Epoll::Find(epoll);
    if (instance == nullptr) return -EINVAL;
    return instance->Control(operation, fd, event);
  });
}

RSOCKET_EXPORT int repoll_wait(int epoll, epoll_event* events, int max_events,
                               int timeout) {
  return Call([&]() -> int {
    const std::shared_ptr<Epoll> instance = Epoll::Find(epoll);
    if (instance == nullptr || max_events <= 0) return -EINVAL;
    if (events == nullptr) return -EFAULT;
    return instance->Wait(events, max_events, DeadlineOf(timeout));
  });
}

RSOCKET_EXPORT int rgetpeername(int fd, sockaddr* address, socklen_t* length) {
  return SocketCall(fd, [&](Socket& socket) -> int {
    sockaddr_storage peer;
    if (const int error = socket.PeerAddress(&peer)) return error;
    return GiveAddress(peer, address, length);
  });
}

RSOCKET_EXPORT int rgetsockname(int fd, sockaddr* address, socklen_t* length) {
  return SocketCall(fd, [&](Socket& socket) -> int {
    sockaddr_storage local;
    if (const int error = socket.LocalAddress(&local)) return error;
    return GiveAddress(local, address, length);
  });
}

RSOCKET_EXPORT int rsetsockopt(int fd, int level, int name, const void* value,
                               socklen_t length) {
  return SocketCall(fd, [&](Socket& socket) {
    return socket.SetOption(level, name, value, length);
  });
}

RSOCKET_EXPORT int rgetsockopt(int fd, int level, int name, void* value,
                               socklen_t* length) {
  return SocketCall(fd, [&](Socket& socket) {
    return socket.GetOption(level, name, value, length);
  });
}

RSOCKET_EXPORT int rfcntl(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  const int argument = va_arg(arguments, int);
  va_end(arguments);
  return SocketCall(fd, [&](Socket& socket) -> int {
    switch (command) {
      case F_GETFL:
        return socket.flags();
      case F_SETFL:
        return socket.SetFlags(argument);
      case F_GETFD:
      case F_SETFD: {
        const int result = fcntl(fd, command, argument);
        return result < 0 ? -errno : result;
      }
      default:
        return -EINVAL;
    }
  });
}

RSOCKET_EXPORT off_t riomap(int fd, void* memory, size_t length, int protection,
                            int /*flags*/, off_t offset) {
  return SocketCall(fd, [&](Socket& socket) {
    return socket.MapMemory(memory, length, protection, offset);
  });
}

RSOCKET_EXPORT int riounmap(int fd, void* memory, size_t length) {
  return SocketCall(
      fd, [&](Socket& socket) { return socket.UnmapMemory(memory, length); });
}

RSOCKET_EXPORT size_t riowrite(int fd, const void* data, size_t length,
                               off_t offset, int flags) {
  const iovec iov = One(data, length);
  return static_cast<size_t>(SocketCall(fd, [&](Socket& socket) {
    return socket.WriteMapped(IovCursor(&iov, 1), offset, flags);
  }));
}

}  // namespace rsockets
