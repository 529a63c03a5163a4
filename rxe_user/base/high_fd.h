// Descriptors that the library keeps for itself, out of the program's way.
#ifndef RXE_USER_BASE_HIGH_FD_H_
#define RXE_USER_BASE_HIGH_FD_H_

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace rxe_user {

// Programs take small numbers for granted: select(2) ends at 1,024, others have
// limits of their own.
inline constexpr int kFirstHighFd = 512;

// The same file under a number of at least kFirstHighFd, close-on-exec, and
// `fd` is closed; or `fd` as it is, if the soft limit has no room there. For
// what nobody knows by its number yet. errno stays.
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
