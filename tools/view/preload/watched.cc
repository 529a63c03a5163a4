#include "tools/view/preload/watched.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tools/view/preload/tree_client.h"

namespace view {

bool any_watched = false;

namespace {

constexpr int kMax = 64;
// The first read within this many nanoseconds after opening needs no refresh.
constexpr long kFreshFromOpen = 10'000'000;

// An open attribute. It is identified by its file, too: the program may close
// the descriptor without our knowledge and reuse its number. Entries are
// accessed without a lock. If two threads open files at the same time, one
// entry may be lost; its value then remains that of the opening. A mix of two
// entries matches no open file.
struct Entry {
  int fd_plus_1;  // 0: free
  dev_t device;
  ino_t file;
  timespec opened;  // 0 after the first read
};
Entry entries[kMax];

// A direct system call, because a sanitizer would report accesses to
// descriptors of other threads.
bool Stat(int fd, struct stat* s) { return syscall(SYS_fstat, fd, s) == 0; }

bool IsFile(const Entry& entry, int fd) {
  struct stat s;
  return Stat(fd, &s) && s.st_dev == entry.device && s.st_ino == entry.file;
}

long Since(const timespec& then) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (now.tv_sec - then.tv_sec) * 1'000'000'000 + now.tv_nsec -
         then.tv_nsec;
}

}  // namespace

void Watch(int fd) {
  const int saved_errno = errno;
  struct stat s;
  if (Stat(fd, &s) && S_ISREG(s.st_mode)) {
    Entry* place = nullptr;
    for (Entry& entry : entries) {
      if (entry.fd_plus_1 == fd + 1) {
        place = &entry;
        break;
      }
      if (place == nullptr &&
          (entry.fd_plus_1 == 0 || !IsFile(entry, entry.fd_plus_1 - 1))) {
        place = &entry;
      }
    }
    if (place != nullptr) {
      timespec now{};
      clock_gettime(CLOCK_MONOTONIC, &now);
      *place = {fd + 1, s.st_dev, s.st_ino, now};
      any_watched = true;
    }
  }
  errno = saved_errno;
}

void FreshenWatched(int fd, off_t offset) {
  const int saved_errno = errno;
  for (Entry& entry : entries) {
    if (entry.fd_plus_1 != fd + 1) continue;
    if (offset < 0) offset = syscall(SYS_lseek, fd, 0, SEEK_CUR);
    if (offset == 0 && IsFile(entry, fd)) {
      if (Since(entry.opened) > kFreshFromOpen) {
        char buffer[PATH_MAX];
        // Relative to the file itself, "." is the file.
        InTree(fd, ".", Look::kOpen, buffer);
      }
      entry.opened = {};
    }
    break;
  }
  errno = saved_errno;
}

}  // namespace view
