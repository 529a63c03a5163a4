#include "rxe_user/base/warn_once.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <mutex>
#include <new>
#include <set>

#include "rxe_user/base/fork_guard.h"
#include "rxe_user/base/only_one.h"

namespace rxe_user {
namespace {

// By syscall(2), since the C library's functions are cancellation points.
void WriteWithoutWaiting(const char* text, size_t size) {
  struct stat file;
  pollfd writable = {STDERR_FILENO, POLLOUT, 0};
  timespec at_once = {};
  // POLLERR: the pipe has no reader, and a write would end the program.
  if (::fstat(STDERR_FILENO, &file) != 0 ||
      ::syscall(SYS_ppoll, &writable, 1, &at_once, nullptr, 0) != 1 ||
      writable.revents != POLLOUT) {
    return;
  }
  if (S_ISSOCK(file.st_mode)) {
    ::syscall(SYS_sendto, STDERR_FILENO, text, size,
              MSG_DONTWAIT | MSG_NOSIGNAL, nullptr, 0);
    return;
  }
  // Another process may fill the pipe before us. It is reopened, since
  // O_NONBLOCK would otherwise apply to every process that shares the open
  // file.
  long fd = -1;
  if (S_ISFIFO(file.st_mode) || S_ISCHR(file.st_mode)) {
    fd = ::syscall(SYS_openat, AT_FDCWD, "/proc/self/fd/2",
                   O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0);
  }
  ::syscall(SYS_write, fd >= 0 ? fd : STDERR_FILENO, text, size);
  if (fd >= 0) ::syscall(SYS_close, fd);
}

struct PrintedTopics {
  ForkSafeMutex mutex;
  std::set<std::string> topics;
};

// A limit, since peers may choose the topics: they must not be able to fill
// memory or a disk.
constexpr size_t kMaxTopics = 256;

}  // namespace

void Warn(const std::string& line) {
  const std::string text = "rxe_user: " + line + "\n";
  WriteWithoutWaiting(text.data(), text.size());
}

void WarnOnce(const std::string& line) { WarnOnceAbout(line, line); }

void WarnOnceAbout(const std::string& topic, const std::string& line) {
  try {
    {
      PrintedTopics& printed = OnlyOne<PrintedTopics>();
      const std::lock_guard lock(printed.mutex);
      if (printed.topics.size() >= kMaxTopics ||
          !printed.topics.insert(topic).second) {
        return;
      }
    }
    Warn(line);
  } catch (const std::bad_alloc&) {
    // Without memory, there is no line.
  }
}

}  // namespace rxe_user
