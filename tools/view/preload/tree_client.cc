#include "tools/view/preload/tree_client.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tools/view/preload/helper.h"
#include "tools/view/preload/inside.h"
#include "tools/view/preload/path.h"

// musl does not have it.
extern "C" __attribute__((weak)) decltype(dlvsym) dlvsym;

namespace view {
namespace {

constexpr unsigned long kFresh = 200;  // milliseconds

// The last result, with its process and time. A thread takes it by an atomic
// exchange, without waiting; if another thread has it, the caller does without.
struct Known {
  bool taken = false;
  pid_t pid = 0;
  unsigned long time = 0;   // when it was found, in milliseconds
  unsigned long fresh = 0;  // how long it is valid, in milliseconds
  char root[kRootSize] = "";
};
Known known;

bool Take() {
  return !__atomic_exchange_n(&known.taken, true, __ATOMIC_ACQUIRE);
}
void GiveBack() { __atomic_store_n(&known.taken, false, __ATOMIC_RELEASE); }

unsigned long Now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<unsigned long>(now.tv_sec) * 1000 +
         static_cast<unsigned long>(now.tv_nsec) / 1000000;
}

// The path of `rxe-user`: ../bin from this library. Empty until known.
char helper[PATH_MAX];

__attribute__((constructor)) void FindHelper() {
  Dl_info info;
  if (dladdr(&known, &info) == 0 || info.dli_fname == nullptr) return;
  const char* end = strrchr(info.dli_fname, '/');
  constexpr char kFromHere[] = "/../bin/rxe-user";
  if (end == nullptr) return;
  const size_t length = static_cast<size_t>(end - info.dli_fname);
  if (length + sizeof(kFromHere) > sizeof(helper)) return;
  memcpy(helper, info.dli_fname, length);
  memcpy(helper + length, kFromHere, sizeof(kFromHere));
}

// Called by exit(3). For _exit(2) see leave.cc.
__attribute__((destructor)) void LeaveAtExit() { Leave(); }

// A musl program that cannot run the helper does not see our devices.
void WarnMusl() {
  static bool told = false;
  if (__atomic_exchange_n(&told, true, __ATOMIC_RELAXED)) return;
  constexpr char kText[] =
      "rxe_user: this program is linked with musl and our libraries with "
      "glibc, "
      "so it does not see our devices\n";
  syscall(SYS_write, 2, kText, sizeof(kText) - 1);
}

// Makes the helper write the index if it is old, and read the counters if
// `counters`. Writes the path of the tree's root, with a terminating zero.
// Returns false if there is none.
bool FindRoot(bool counters, char (&root)[kRootSize]) {
  const pid_t pid = getpid();
  bool fresh = false;
  if (Take()) {
    fresh = known.pid == pid && Now() - known.time < known.fresh;
    if (fresh) memcpy(root, known.root, kRootSize);
    GiveBack();
  }
  if (fresh && !counters) return true;
  // A constructor of another library may run before ours.
  if (helper[0] == 0) FindHelper();
  const unsigned long start = Now();
  bool found = RunHelper(helper, pid,
                         fresh      ? Task::kCounters
                         : counters ? Task::kIndexAndCounters
                                    : Task::kIndex,
                         root);
  if (!Take()) return found;
  if (found) {
    looked = true;
    if (!fresh) {
      known.pid = pid;
      known.time = Now();
      const unsigned long twice = 2 * (known.time - start);
      known.fresh = twice > kFresh ? twice : kFresh;
      memcpy(known.root, root, kRootSize);
    }
  } else if (dlvsym == nullptr && known.pid != pid) {
    WarnMusl();
  } else if (known.pid == pid) {
    // The helper timed out: old values are better than the system's files.
    memcpy(root, known.root, kRootSize);
    found = true;
  }
  GiveBack();
  return found;
}

}  // namespace

const char* InTree(int fd, const char* path, Look look,
                   char (&buffer)[PATH_MAX]) {
  const int saved_errno = errno;
  // The name is written behind the space for the root.
  char* const name = buffer + kRootSize;
  constexpr size_t kMax = PATH_MAX - kRootSize;
  const char* result = path;
  char root[kRootSize];
  bool viewed;
  if (path[0] == '/') {
    const size_t size = strlen(path) + 1;
    viewed = size <= kMax;
    if (viewed) memcpy(name, path, size);
  } else {
    viewed = KnownPath(fd, path, name, kMax);
  }
  if (viewed && FindRoot(look == Look::kOpen && IsCounter(name), root)) {
    Fill(root, name, look);
    const size_t length = strlen(root);
    memmove(buffer + length, name, strlen(name) + 1);
    memcpy(buffer, root, length);
    result = buffer;
  }
  errno = saved_errno;
  return result;
}

void Leave() {
  if (known.pid != getpid()) return;
  char answer[kRootSize];
  RunHelper(helper, known.pid, Task::kLeave, answer);
  known.pid = 0;
}

}  // namespace view
