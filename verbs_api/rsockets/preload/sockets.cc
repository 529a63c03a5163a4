// The life of sockets: socket(2), bind(2), connect(2), close(2) and the like.
#include <fcntl.h>
#include <netinet/in.h>
#include <rdma/rsocket.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

#include "verbs_api/rsockets/preload/epoll.h"
#include "verbs_api/rsockets/preload/fork.h"
#include "verbs_api/rsockets/preload/real.h"
#include "verbs_api/rsockets/preload/table.h"

namespace rspreload {
namespace {

// Whether the call comes from rxe_user's libraries, whose sockets stay the
// kernel's. `caller`: an address in the calling code.
bool IsOwnLibrary(const void* caller) {
  Dl_info info;
  if (dladdr(caller, &info) == 0 || info.dli_fname == nullptr) return false;
  const char* const slash = std::strrchr(info.dli_fname, '/');
  const char* const name = slash != nullptr ? slash + 1 : info.dli_fname;
  return std::strncmp(name, "libibverbs.", 11) == 0 ||
         std::strncmp(name, "librdmacm.", 10) == 0;
}

bool IsTcp(int domain, int type, int protocol) {
  return (domain == AF_INET || domain == AF_INET6) &&
         (type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) == SOCK_STREAM &&
         (protocol == 0 || protocol == IPPROTO_TCP);
}

// Puts an rsocket behind `fd`, or closes the rsocket.
void PutOrClose(int fd, int rsocket) {
  if (rsocket >= 0 && !Put(fd, rsocket)) rclose(rsocket);
}

// Removes and closes the rsocket behind `fd`.
void CloseRsocketBehind(int fd) {
  const int rsocket = Take(fd);
  if (rsocket >= 0) rclose(rsocket);
}

// The program closes the descriptors or has replaced them. A child of vfork(2)
// shares its parent's memory, and the descriptors there are the parent's.
void Forget(int first, int last) {
  if (!IsOwner()) return;
  const KeptErrno kept;
  ForgetEpoll(first, last);
  ForgetShared(first, last);
  for (int fd = first; fd <= last && fd < kMaxDescriptors; ++fd)
    CloseRsocketBehind(fd);
}

// The port of an IPv4 or IPv6 address.
uint16_t PortOf(const sockaddr* address) {
  sockaddr_in in;  // the port of IPv6 is at the same offset
  std::memcpy(&in, address, sizeof(in));
  return ntohs(in.sin_port);
}

// Well-known ports stay TCP, as in rdma-core's library: the system's own
// programs expect TCP there.
bool IsWellKnown(const sockaddr* address, socklen_t length) {
  if (address == nullptr || length < sizeof(sockaddr_in)) return true;
  if (address->sa_family != AF_INET && address->sa_family != AF_INET6) {
    return true;
  }
  const uint16_t port = PortOf(address);
  return port != 0 && port <= 1024;
}

// Whether the error means that there is no RDMA to the address.
bool IsNoRdma(int error) {
  switch (error) {
    case ENODEV:
    case EADDRNOTAVAIL:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EAFNOSUPPORT:
      return true;
    default:
      return false;
  }
}

// Calls `on_rsocket` for the rsocket behind `fd`. Calls `on_fd` for the
// kernel's socket if there is no rsocket, or RDMA is not possible.
template <typename OnRsocket, typename OnFd>
int OrFallBack(int fd, const sockaddr* address, socklen_t length,
               OnRsocket on_rsocket, OnFd on_fd) {
  const int rsocket = Behind(fd);
  if (rsocket < 0) return on_fd();
  const int before = errno;
  if (!IsWellKnown(address, length)) {
    const int result = on_rsocket(rsocket);
    if (result == 0 || !IsNoRdma(errno)) return result;
  }
  // From now on the program uses the kernel's socket. A thread that waits for
  // the rsocket finds the socket in the kernel's instance before the rsocket is
  // closed.
  const int unused = Take(fd);
  LeaveEpollToKernel(fd);
  if (unused >= 0) rclose(unused);
  errno = before;
  return on_fd();
}

// Binds the kernel's socket, which will connect instead, as the program bound
// the rsocket. Returns false, with errno, if the address is taken.
bool BindAs(int fd, const sockaddr_storage& local) {
  if (PortOf(reinterpret_cast<const sockaddr*>(&local)) == 0) return true;
  int no_port = 0;
  socklen_t length = sizeof(no_port);
  REAL(getsockopt)
  (fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &no_port, &length);
  // BindToAddress has bound it.
  if (no_port != 0) return true;
  return REAL(bind)(fd, reinterpret_cast<const sockaddr*>(&local),
                    local.ss_family == AF_INET6 ? sizeof(sockaddr_in6)
                                                : sizeof(sockaddr_in)) == 0;
}

// The program has bound to a port of the system's choice. Binds the kernel's
// socket to the address; it takes a port only when it connects. Where the
// kernel cannot do that, BindAs binds it.
void BindToAddress(int fd, const sockaddr* address, socklen_t length) {
  const KeptErrno kept;
  const int on = 1;
  if (REAL(setsockopt)(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on,
                       sizeof(on)) == 0) {
    REAL(bind)(fd, address, length);
  }
}

// Creates the descriptor first: without one the connection stays in the
// backlog.
int AcceptOn(int listener, sockaddr* address, socklen_t* length, int flags) {
  sockaddr_storage local = {};
  socklen_t size = sizeof(local);
  rgetsockname(listener, reinterpret_cast<sockaddr*>(&local), &size);
  const int fd = REAL(socket)(local.ss_family == AF_INET6 ? AF_INET6 : AF_INET,
                              SOCK_STREAM | flags, 0);
  const int rsocket = fd >= 0 ? raccept(listener, address, length) : -1;
  Used(listener, EPOLLIN);  // whether or not it succeeded
  if (rsocket >= 0) {
    if ((flags & SOCK_NONBLOCK) != 0) rfcntl(rsocket, F_SETFL, O_NONBLOCK);
    if (Put(fd, rsocket)) return fd;
    rclose(rsocket);
    errno = EMFILE;
  }
  const KeptErrno kept;
  if (fd >= 0) REAL(close)(fd);
  return -1;
}

// The kernel has duplicated `fd` as `copy`.
int Copied(int fd, int copy) {
  if (copy < 0 || copy == fd || !IsOwner()) return copy;
  const KeptErrno kept;
  Forget(copy, copy);  // dup2 has closed it
  CopyShared(fd, copy);
  CopyEpoll(fd, copy);
  const int rsocket = Behind(fd);
  if (rsocket >= 0) Put(copy, rsocket);
  return copy;
}

int Control(int fd, int result, int command, long argument) {
  if (result < 0) return result;
  switch (command) {
    case F_DUPFD:
    case F_DUPFD_CLOEXEC:
      return Copied(fd, result);
    case F_SETFL:
      if (Behind(fd) >= 0) {
        rfcntl(Behind(fd), F_SETFL, static_cast<int>(argument));
      }
      return result;
    default:
      return result;
  }
}

// The number of bytes that can be read.
int CountReadable(int rsocket, int* out) {
  constexpr size_t kMax = 1 << 16;
  const std::unique_ptr<uint8_t[]> scratch(new (std::nothrow) uint8_t[kMax]);
  if (scratch == nullptr) {
    errno = ENOMEM;
    return -1;
  }
  const ssize_t n =
      rrecv(rsocket, scratch.get(), kMax, MSG_PEEK | MSG_DONTWAIT);
  *out = n > 0 ? static_cast<int>(n) : 0;
  return 0;
}

}  // namespace
}  // namespace rspreload

using rspreload::Behind;

PRELOADED int socket(int domain, int type, int protocol) noexcept {
  const int fd = REAL(socket)(domain, type, protocol);
  if (fd < 0 || !rspreload::IsTcp(domain, type, protocol)) return fd;
  if (rspreload::IsOwnLibrary(__builtin_return_address(0))) return fd;
  const rspreload::KeptErrno kept;
  const int rs = rsocket(domain, SOCK_STREAM | (type & SOCK_NONBLOCK), 0);
  if (rs >= 0) rspreload::WatchForks();
  rspreload::PutOrClose(fd, rs);
  return fd;
}

PRELOADED int bind(int fd, const sockaddr* address, socklen_t length) noexcept {
  return rspreload::OrFallBack(
      fd, address, length,
      [&](int rs) {
        const int result = rbind(rs, address, length);
        if (result == 0 && rspreload::PortOf(address) == 0) {
          rspreload::BindToAddress(fd, address, length);
        }
        return result;
      },
      [&] { return REAL(bind)(fd, address, length); });
}

PRELOADED int connect(int fd, const sockaddr* address, socklen_t length) {
  sockaddr_storage local = {};
  socklen_t local_length = sizeof(local);
  if (Behind(fd) >= 0) {
    rgetsockname(Behind(fd), reinterpret_cast<sockaddr*>(&local),
                 &local_length);
  }
  return rspreload::OrFallBack(
      fd, address, length,
      [&](int rs) {
        const int result = rconnect(rs, address, length);
        const rspreload::KeptErrno kept;
        rspreload::RenewInEpoll(rs);
        return result;
      },
      [&] {
        return rspreload::BindAs(fd, local) ? REAL(connect)(fd, address, length)
                                            : -1;
      });
}

PRELOADED int listen(int fd, int backlog) noexcept {
  const int rs = Behind(fd);
  if (rs < 0) return REAL(listen)(fd, backlog);
  const int result = rlisten(rs, backlog);
  if (result == 0) {
    const rspreload::KeptErrno kept;
    rspreload::RenewInEpoll(rs);
  }
  return result;
}

PRELOADED int accept(int fd, sockaddr* address, socklen_t* length) {
  const int rs = Behind(fd);
  return rs >= 0 ? rspreload::AcceptOn(rs, address, length, 0)
                 : REAL(accept)(fd, address, length);
}

PRELOADED int accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  const int rs = Behind(fd);
  return rs >= 0 ? rspreload::AcceptOn(rs, address, length, flags)
                 : REAL(accept4)(fd, address, length, flags);
}

PRELOADED int shutdown(int fd, int how) noexcept {
  const int rs = Behind(fd);
  return rs >= 0 ? rshutdown(rs, how) : REAL(shutdown)(fd, how);
}

PRELOADED int close(int fd) {
  rspreload::Forget(fd, fd);
  return REAL(close)(fd);
}

PRELOADED int close_range(unsigned first, unsigned last, int flags) noexcept {
  const auto real = REAL(close_range);
  if (real == nullptr) {
    errno = ENOSYS;
    return -1;
  }
  if (first <= last && (flags & CLOSE_RANGE_CLOEXEC) == 0) {
    constexpr unsigned kMax = INT_MAX;
    rspreload::Forget(static_cast<int>(std::min(first, kMax)),
                      static_cast<int>(std::min(last, kMax)));
  }
  return real(first, last, flags);
}

PRELOADED void closefrom(int first) noexcept {
  const auto real = REAL(closefrom);
  if (real == nullptr) return;
  rspreload::Forget(std::max(first, 0), INT_MAX);
  real(first);
}

PRELOADED int getpeername(int fd, sockaddr* address,
                          socklen_t* length) noexcept {
  if (rspreload::IsShared(fd)) {
    return rspreload::SharedName(fd, true, address, length);
  }
  const int rs = Behind(fd);
  return rs >= 0 ? rgetpeername(rs, address, length)
                 : REAL(getpeername)(fd, address, length);
}

PRELOADED int getsockname(int fd, sockaddr* address,
                          socklen_t* length) noexcept {
  if (rspreload::IsShared(fd)) {
    return rspreload::SharedName(fd, false, address, length);
  }
  const int rs = Behind(fd);
  return rs >= 0 ? rgetsockname(rs, address, length)
                 : REAL(getsockname)(fd, address, length);
}

// The kernel's socket checks the option, and stores options that rsockets do
// not have.
PRELOADED int setsockopt(int fd, int level, int name, const void* value,
                         socklen_t length) noexcept {
  const int rs = Behind(fd);
  if (rs >= 0) {
    if (level == SOL_SOCKET && name == SO_ZEROCOPY) {
      errno = EOPNOTSUPP;  // there is no error queue
      return -1;
    }
    const int before = errno;
    const int result = rsetsockopt(rs, level, name, value, length);
    if (level == SOL_RDMA) return result;
    errno = before;
  } else if (level != SOL_SOCKET && rspreload::IsShared(fd)) {
    return 0;  // rsockets do not run TCP
  }
  return REAL(setsockopt)(fd, level, name, value, length);
}

PRELOADED int getsockopt(int fd, int level, int name, void* value,
                         socklen_t* length) noexcept {
  const int rs = Behind(fd);
  if (rs >= 0) {
    const int before = errno;
    const int result = rgetsockopt(rs, level, name, value, length);
    if (result == 0 || level == SOL_RDMA) return result;
    errno = before;
  }
  return REAL(getsockopt)(fd, level, name, value, length);
}

#define FCNTL(name)                                                           \
  PRELOADED int name(int fd, int command, ...) {                              \
    va_list arguments;                                                        \
    va_start(arguments, command);                                             \
    const long argument = va_arg(arguments, long);                            \
    va_end(arguments);                                                        \
    return rspreload::Control(fd, REAL(name)(fd, command, argument), command, \
                              argument);                                      \
  }
FCNTL(fcntl)
FCNTL(fcntl64)

PRELOADED int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list arguments;
  va_start(arguments, request);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  const int rs = Behind(fd);
  if (rs >= 0 && request == FIONREAD) {
    return rspreload::CountReadable(rs, static_cast<int*>(argument));
  }
  const int result = REAL(ioctl)(fd, request, argument);
  if (rs >= 0 && result == 0 && request == FIONBIO) {
    const bool on = *static_cast<const int*>(argument) != 0;
    rfcntl(rs, F_SETFL, on ? O_NONBLOCK : 0);
  }
  return result;
}

PRELOADED int dup(int fd) noexcept {
  return rspreload::Copied(fd, REAL(dup)(fd));
}

PRELOADED int dup2(int fd, int copy) noexcept {
  return rspreload::Copied(fd, REAL(dup2)(fd, copy));
}

PRELOADED int dup3(int fd, int copy, int flags) noexcept {
  return rspreload::Copied(fd, REAL(dup3)(fd, copy, flags));
}
