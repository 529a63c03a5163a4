// A file descriptor that closes itself.
#ifndef RXE_USER_BASE_UNIQUE_FD_H_
#define RXE_USER_BASE_UNIQUE_FD_H_

#include <fcntl.h>
#include <unistd.h>

#include <utility>

namespace rxe_user {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) Reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~UniqueFd() { Reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  [[nodiscard]] int Release() { return std::exchange(fd_, -1); }
  void Reset(int fd = -1) {
    if (fd_ >= 0) close(fd_);
    fd_ = fd;
  }
  // A duplicate descriptor, close-on-exec; invalid on failure.
  UniqueFd Copy() const { return UniqueFd(fcntl(fd_, F_DUPFD_CLOEXEC, 3)); }

 private:
  int fd_ = -1;
};

}  // namespace rxe_user

#endif  // RXE_USER_BASE_UNIQUE_FD_H_
