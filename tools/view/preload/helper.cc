#include "tools/view/preload/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// libc's clone(2) under the name by which sanitizers do not know it: one takes
// it for a fork after which no thread may be started.
extern "C" int __clone(int (*start)(void*), void* stack, int flags,
                       void* argument, ...);

namespace view {
namespace {

// All system calls are made bare: libc's would be points of cancellation, and
// some of them are other libraries' to intercept.

constexpr size_t kStack = 32 << 10;  // for each of the two children
constexpr size_t kSignalSet = 8;     // bytes, as the kernel has it
constexpr long kPatience = 20;       // seconds
constexpr int kMostVariables = 16;

struct Start {
  const char* helper;
  char* const* argv;
  char* const* envp;
  char* answer;  // of kRootSize bytes
  size_t got;    // bytes of it
  // --- Between's.
  int output;
  char* stack;  // its end
};

// The process that becomes the helper. It shares our memory until then.
int Become(void* argument) {
  const Start& start = *static_cast<const Start*>(argument);
  syscall(SYS_setsid);  // no signals of our terminal
  const unsigned long none = 0;
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, nullptr, kSignalSet);
  const long null = syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR, 0);
  // Above the three, which the program may have closed.
  const long output = syscall(SYS_fcntl, start.output, F_DUPFD, 3);
  const long nothing = syscall(SYS_fcntl, null, F_DUPFD, 3);
  if (output < 0 || nothing < 0) syscall(SYS_exit_group, 127);
  syscall(SYS_dup3, nothing, 0, 0);
  syscall(SYS_dup3, output, 1, 0);
  syscall(SYS_dup3, nothing, 2, 0);
  syscall(SYS_close_range, 3, ~0u, 0);
  syscall(SYS_execve, start.helper, start.argv, start.envp);
  syscall(SYS_exit_group, 127);
  return 0;
}

// All that the helper writes until it ends, or as much as there is room for.
// False if it does not end.
bool ReadAll(int fd, char* text, size_t size, size_t* got) {
  timespec end{};
  clock_gettime(CLOCK_MONOTONIC, &end);
  end.tv_sec += kPatience;
  while (*got < size) {
    timespec left{};
    clock_gettime(CLOCK_MONOTONIC, &left);
    if (left.tv_sec >= end.tv_sec) return false;
    left = {end.tv_sec - left.tv_sec, 0};
    pollfd wait = {fd, POLLIN, 0};
    const long ready = syscall(SYS_ppoll, &wait, 1, &left, nullptr, kSignalSet);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const long n = syscall(SYS_read, fd, text + *got, size - *got);
    if (n <= 0) return n == 0;
    *got += static_cast<size_t>(n);
  }
  return false;
}

// The process between us and the helper, its parent. The helper would be told
// to us, since exec gives it SIGCHLD for its end; this one ends without a
// signal, and only who asks for such children (__WCLONE) is told of it. It
// stays until the helper has ended: who is process 1 or a subreaper would
// inherit it.
int Between(void* argument) {
  Start& start = *static_cast<Start*>(argument);
  int ends[2];
  if (syscall(SYS_pipe2, ends, O_CLOEXEC) != 0) syscall(SYS_exit_group, 0);
  start.output = ends[1];
  const int helper = __clone(Become, start.stack,
                             CLONE_VM | CLONE_VFORK | SIGCHLD, argument);
  if (helper > 0) {
    syscall(SYS_close, ends[1]);
    // The program's descriptors are not to stay open with us.
    if (ends[0] > 0) syscall(SYS_close_range, 0, ends[0] - 1, 0);
    syscall(SYS_close_range, ends[0] + 1, ~0u, 0);
    if (!ReadAll(ends[0], start.answer, kRootSize, &start.got)) {
      syscall(SYS_kill, helper, SIGKILL);
      start.got = 0;
    }
    syscall(SYS_wait4, helper, nullptr, __WALL, nullptr);
  }
  syscall(SYS_exit_group, 0);
  return 0;
}

// Runs the helper until it ends.
void Run(Start* start) {
  void* memory = mmap(nullptr, 2 * kStack, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) return;
  char* const first = static_cast<char*>(memory) + kStack;
  start->stack = first + kStack;
  // A handler would run in a child that shares our memory.
  const unsigned long all = ~0ul;
  unsigned long before = 0;
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, kSignalSet);
  // We go on when it has ended.
  const int child = __clone(Between, first, CLONE_VM | CLONE_VFORK, start);
  if (child > 0) {
    while (syscall(SYS_wait4, child, nullptr, __WCLONE, nullptr) < 0 &&
           errno == EINTR) {
    }
  }
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, nullptr, kSignalSet);
  munmap(memory, 2 * kStack);
}

// What of the program's environment the helper heeds.
bool IsForHelper(const char* variable) {
  return strncmp(variable, "RXE_USER_", 9) == 0 ||
         strncmp(variable, "XDG_RUNTIME_DIR=", 16) == 0;
}

}  // namespace

bool RunHelper(const char* helper, pid_t pid, bool leave,
               char (&answer)[kRootSize]) {
  if (helper[0] == 0) return false;
  char number[16];
  char* digit = number + sizeof(number);
  *--digit = 0;
  for (pid_t rest = pid; rest > 0; rest /= 10) {
    *--digit = static_cast<char>('0' + rest % 10);
  }
  char name[] = "rxe-user", command[] = "view", user[] = "--for",
       leaving[] = "--leave";
  char* const argv[] = {name,   command, user, digit, leave ? leaving : nullptr,
                        nullptr};
  char* envp[kMostVariables + 1] = {};
  int variables = 0;
  for (char** v = environ; v != nullptr && *v != nullptr; ++v) {
    if (variables < kMostVariables && IsForHelper(*v)) envp[variables++] = *v;
  }

  Start start = {helper, argv, envp, answer, 0, -1, nullptr};
  Run(&start);
  size_t got = start.got;
  if (got == 0 || answer[0] != '/') return false;
  if (answer[got - 1] == '\n') --got;
  answer[got] = 0;
  return true;
}

}  // namespace view
