// High numbers for the library's descriptors.
#ifndef RXE_USER_BASE_HIGH_FD_H_
#define RXE_USER_BASE_HIGH_FD_H_

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace rxe_user {

// Programs expect small numbers for their own files: select(2) is limited to
// 1,024, and some programs have other limits.
inline constexpr int kFirstHighFd = 512;

// Moves `fd` to a number of at least kFirstHighFd, close-on-exec. Returns `fd`
// itself if the soft limit does not allow that. Only for a descriptor whose
// number is not in use yet. Preserves errno.
inline int MoveHigh(int fd) {
  if (fd < 0 || fd >= kFirstHighFd) return fd;
  const int before = errno;
  const int high = fcntl(fd, F_DUPFD_CLOEXEC, kFirstHighFd);
  if (high >= 0) close(fd);
  errno = before;
  return high >= 0 ? high : fd;
}

}  // namespace rxe_user

#endif  // RXE_USER_BASE_HIGH_FD_H_
