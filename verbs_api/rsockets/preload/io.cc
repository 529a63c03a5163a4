// Data transfer: recv(2), write(2), sendfile(2) and the like.
#include <rdma/rsocket.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <new>

#include "verbs_api/rsockets/preload/fork.h"
#include "verbs_api/rsockets/preload/real.h"
#include "verbs_api/rsockets/preload/table.h"

// Called by programs that are built with _FORTIFY_SOURCE.
extern "C" {
ssize_t __recv_chk(int, void*, size_t, size_t, int);
ssize_t __recvfrom_chk(int, void*, size_t, size_t, int, sockaddr*, socklen_t*);
ssize_t __read_chk(int, void*, size_t, size_t);
}

namespace rspreload {
namespace {

// Handles a failed send, with errno. Without a connection, TCP also raises
// SIGPIPE: send(2), write(2).
void FailSend(int flags) {
  switch (errno) {
    case EPIPE:
    case ECONNRESET:
    case ENOTCONN:
      if ((flags & MSG_NOSIGNAL) == 0) raise(SIGPIPE);
      errno = EPIPE;
  }
}

// For a call that sends with `flags`: calls `on_rsocket(rsocket)` if `fd` has
// an rsocket, else `on_fd()`.
template <typename OnRsocket, typename OnFd>
inline ssize_t DispatchSend(int fd, int flags, OnRsocket on_rsocket,
                            OnFd on_fd) {
  const int rsocket = Behind(fd);
  if (__builtin_expect(rsocket < 0, 1)) return on_fd();
  const ssize_t result = on_rsocket(rsocket);
  Used(rsocket, EPOLLOUT);
  if (__builtin_expect(result < 0, 0)) FailSend(flags);
  return result;
}

// The same for a call that receives.
template <typename OnRsocket, typename OnFd>
inline ssize_t DispatchReceive(int fd, OnRsocket on_rsocket, OnFd on_fd) {
  for (;;) {
    const int rsocket = Behind(fd);
    if (__builtin_expect(rsocket < 0, 1)) return on_fd();
    const ReceiveCall call(rsocket);
    if (call.IsTooLate(fd)) continue;
    const ssize_t result = on_rsocket(rsocket);
    Used(rsocket, EPOLLIN);
    return result;
  }
}

// Sends from a file to an rsocket. `offset`: null for the file's own offset.
ssize_t SendFile(int rsocket, int file, off64_t* offset, size_t count) {
  constexpr size_t kMax = 1 << 16;
  // Not thread_local: that would take space in every thread's stack.
  const std::unique_ptr<char[]> memory(
      new (std::nothrow) char[std::min(count, kMax)]);
  char* const buffer = memory.get();
  if (buffer == nullptr) {
    errno = ENOMEM;
    return -1;
  }
  size_t done = 0;
  while (done < count) {
    const size_t part = std::min(count - done, kMax);
    const ssize_t got = offset != nullptr ? pread64(file, buffer, part, *offset)
                                          : REAL(read)(file, buffer, part);
    if (got < 0) return done > 0 ? static_cast<ssize_t>(done) : -1;
    if (got == 0) break;
    const ssize_t sent = rsend(rsocket, buffer, static_cast<size_t>(got), 0);
    const ssize_t kept = std::max<ssize_t>(sent, 0);
    if (offset != nullptr) {
      *offset += kept;
    } else if (kept < got) {
      const int error = errno;
      lseek64(file, kept - got, SEEK_CUR);
      errno = error;
    }
    done += static_cast<size_t>(kept);
    if (sent < 0 && done == 0) return -1;
    if (sent < got) break;
  }
  return static_cast<ssize_t>(done);
}

}  // namespace
}  // namespace rspreload

using rspreload::DispatchReceive;
using rspreload::DispatchSend;

PRELOADED ssize_t recv(int fd, void* data, size_t length, int flags) {
  return DispatchReceive(
      fd, [&](int rs) { return rrecv(rs, data, length, flags); },
      [&] { return REAL(recv)(fd, data, length, flags); });
}

PRELOADED ssize_t __recv_chk(int fd, void* data, size_t length, size_t size,
                             int flags) {
  return DispatchReceive(
      fd,
      [&](int rs) { return rrecv(rs, data, std::min(length, size), flags); },
      [&] { return REAL(__recv_chk)(fd, data, length, size, flags); });
}

PRELOADED ssize_t recvfrom(int fd, void* data, size_t length, int flags,
                           sockaddr* from, socklen_t* from_length) {
  return DispatchReceive(
      fd,
      [&](int rs) {
        return rrecvfrom(rs, data, length, flags, from, from_length);
      },
      [&] {
        return REAL(recvfrom)(fd, data, length, flags, from, from_length);
      });
}

PRELOADED ssize_t __recvfrom_chk(int fd, void* data, size_t length, size_t size,
                                 int flags, sockaddr* from,
                                 socklen_t* from_length) {
  return DispatchReceive(
      fd,
      [&](int rs) {
        return rrecvfrom(rs, data, std::min(length, size), flags, from,
                         from_length);
      },
      [&] {
        return REAL(__recvfrom_chk)(fd, data, length, size, flags, from,
                                    from_length);
      });
}

PRELOADED ssize_t recvmsg(int fd, msghdr* message, int flags) {
  return DispatchReceive(
      fd, [&](int rs) { return rrecvmsg(rs, message, flags); },
      [&] { return REAL(recvmsg)(fd, message, flags); });
}

PRELOADED ssize_t read(int fd, void* data, size_t length) {
  return DispatchReceive(
      fd, [&](int rs) { return rrecv(rs, data, length, 0); },
      [&] { return REAL(read)(fd, data, length); });
}

PRELOADED ssize_t __read_chk(int fd, void* data, size_t length, size_t size) {
  return DispatchReceive(
      fd, [&](int rs) { return rrecv(rs, data, std::min(length, size), 0); },
      [&] { return REAL(__read_chk)(fd, data, length, size); });
}

PRELOADED ssize_t readv(int fd, const iovec* iov, int count) {
  return DispatchReceive(
      fd, [&](int rs) { return rreadv(rs, iov, count); },
      [&] { return REAL(readv)(fd, iov, count); });
}

PRELOADED ssize_t send(int fd, const void* data, size_t length, int flags) {
  return DispatchSend(
      fd, flags, [&](int rs) { return rsend(rs, data, length, flags); },
      [&] { return REAL(send)(fd, data, length, flags); });
}

PRELOADED ssize_t sendto(int fd, const void* data, size_t length, int flags,
                         const sockaddr* to, socklen_t to_length) {
  return DispatchSend(
      fd, flags, [&](int rs) { return rsend(rs, data, length, flags); },
      [&] { return REAL(sendto)(fd, data, length, flags, to, to_length); });
}

PRELOADED ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  return DispatchSend(
      fd, flags, [&](int rs) { return rsendmsg(rs, message, flags); },
      [&] { return REAL(sendmsg)(fd, message, flags); });
}

PRELOADED ssize_t write(int fd, const void* data, size_t length) {
  return DispatchSend(
      fd, 0, [&](int rs) { return rsend(rs, data, length, 0); },
      [&] { return REAL(write)(fd, data, length); });
}

PRELOADED ssize_t writev(int fd, const iovec* iov, int count) {
  return DispatchSend(
      fd, 0, [&](int rs) { return rwritev(rs, iov, count); },
      [&] { return REAL(writev)(fd, iov, count); });
}

PRELOADED ssize_t sendfile64(int out, int in, off64_t* offset,
                             size_t count) noexcept {
  return DispatchSend(
      out, 0,
      [&](int rs) { return rspreload::SendFile(rs, in, offset, count); },
      [&] { return REAL(sendfile64)(out, in, offset, count); });
}

PRELOADED ssize_t sendfile(int out, int in, off_t* offset,
                           size_t count) noexcept {
  static_assert(sizeof(off_t) == sizeof(off64_t));
  return sendfile64(out, in, offset, count);
}
