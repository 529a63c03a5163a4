#include "tools/view/preload/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <new>

// glibc's clone(2), under a name that sanitizers do not intercept:
// ThreadSanitizer treats clone as a fork, after which no thread may be started.
// musl only has the other name.
extern "C" __attribute__((weak)) int __clone(int (*start)(void*), void* stack,
                                             int flags, void* argument, ...);
extern "C" int clone(int (*start)(void*), void* stack, int flags,
                     void* argument, ...) noexcept;

namespace view {
namespace {

// System calls are made directly: the functions of libc are cancellation
// points, and other libraries intercept some of them.

constexpr size_t kStack = 32 << 10;  // for each of the two children
constexpr size_t kSignalSet = 8;     // bytes, the kernel's size
constexpr long kHelperTimeout = 20;  // seconds
constexpr int kMaxVariables = 16;

// The data of both children, in the mapping that holds their stacks. They are
// not in our stack frame, which a signal handler of the program may leave by
// longjmp(3).
struct Start {
  const char* helper;
  char* argv[8];
  char number[16];  // the process ID, one of the arguments
  char* envp[kMaxVariables + 1];
  int output;
  char* stack;  // the end of the helper's stack
  pid_t pid;    // that of the helper; 0 until it is known
  // The error of opening /dev/null for the helper; 0 on success. It is read
  // when both children have ended.
  int null_error;
};

int Clone(int (*start)(void*), char* stack, int flags, void* argument) {
  return __clone != nullptr ? __clone(start, stack, flags, argument)
                            : clone(start, stack, flags, argument);
}

// Makes a system call without writing errno, which the two children share with
// us. Returns the result, or a negative errno value.
long RawSyscall(long number, long a, long b, long c, long d) {
#if defined(__x86_64__)
  long result = number;
  register long fourth __asm__("r10") = d;
  __asm__ volatile("syscall"
                   : "+a"(result)
                   : "D"(a), "S"(b), "d"(c), "r"(fourth)
                   : "rcx", "r11", "memory");
  return result;
#elif defined(__aarch64__)
  register long which __asm__("x8") = number;
  register long result __asm__("x0") = a;
  register long second __asm__("x1") = b;
  register long third __asm__("x2") = c;
  register long fourth __asm__("x3") = d;
  __asm__ volatile("svc #0"
                   : "+r"(result)
                   : "r"(which), "r"(second), "r"(third), "r"(fourth)
                   : "memory");
  return result;
#else
  return syscall(number, a, b, c, d);  // writes errno only on failure
#endif
}

// Runs in the process that becomes the helper. Shares our memory until exec.
int RunHelperChild(void* argument) {
  Start& start = *static_cast<Start*>(argument);
  syscall(SYS_setsid);  // no signals from our terminal
  const unsigned long none = 0;
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, nullptr, kSignalSet);
  static constexpr char kNull[] = "/dev/null";
  const long null = RawSyscall(SYS_openat, AT_FDCWD,
                               reinterpret_cast<long>(kNull), O_RDWR, 0);
  // A temporary lack of resources does not mean that /dev/null is missing.
  const bool lacks = null == -EMFILE || null == -ENFILE || null == -ENOMEM;
  if (null < 0 && !lacks) start.null_error = static_cast<int>(-null);
  // Use descriptors above 2: the program may have closed the standard ones.
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

// Runs in the process between us and the helper. exec makes the helper send
// SIGCHLD to its parent, which must not be the program. This process ends
// without a signal; only a wait for such children (__WCLONE) sees it. It exists
// until the helper has ended, since otherwise process 1 or a subreaper would
// inherit the helper.
int RunIntermediate(void* argument) {
  Start& start = *static_cast<Start*>(argument);
  const int pid = Clone(RunHelperChild, start.stack,
                        CLONE_VM | CLONE_VFORK | SIGCHLD, argument);
  __atomic_store_n(&start.pid, pid, __ATOMIC_RELEASE);
  // This process must not keep the program's descriptors open.
  RawSyscall(SYS_close, start.output, 0, 0, 0);
  RawSyscall(SYS_close_range, 0, ~0u, 0, 0);
  if (pid > 0) RawSyscall(SYS_wait4, pid, 0, __WALL, 0);
  RawSyscall(SYS_exit_group, 0, 0, 0, 0);
  return 0;
}

// Reads a line from the helper, or everything until the helper ends. Returns
// false if that takes too long or is longer than `size`.
bool ReadLine(int fd, char* text, size_t size, size_t* got) {
  timespec end{};
  clock_gettime(CLOCK_MONOTONIC, &end);
  end.tv_sec += kHelperTimeout;
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
    if (n < 0) return false;
    *got += static_cast<size_t>(n);
    if (n == 0 || text[*got - 1] == '\n') return true;
  }
  return false;
}

// Runs the helper until it ends. Returns the length of its answer in bytes.
// Signals are unblocked as soon as both processes exist.
size_t Run(Start* start, char* first_stack, char* answer, size_t size) {
  int ends[2];
  if (syscall(SYS_pipe2, ends, O_CLOEXEC) != 0) return 0;
  start->output = ends[1];
  // A signal handler must not run in a child that shares our memory.
  const unsigned long all = ~0ul;
  unsigned long before = 0;
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, kSignalSet);
  int child = Clone(RunIntermediate, first_stack, CLONE_VM, start);
  // qemu-user refuses children that share memory but are not threads. There,
  // the child gets a copy, and the program may see its SIGCHLD.
  if (child < 0 && errno == EINVAL) {
    child = Clone(RunIntermediate, first_stack, SIGCHLD, start);
  }
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, nullptr, kSignalSet);
  syscall(SYS_close, ends[1]);
  size_t got = 0;
  if (child > 0) {
    const bool ends_by_itself = ReadLine(ends[0], answer, size, &got);
    const pid_t helper = __atomic_load_n(&start->pid, __ATOMIC_ACQUIRE);
    if (!ends_by_itself) {
      if (helper > 0) syscall(SYS_kill, helper, SIGKILL);
      got = 0;
    }
    while (syscall(SYS_wait4, child, nullptr, __WALL, nullptr) < 0 &&
           errno == EINTR) {
    }
  }
  syscall(SYS_close, ends[0]);
  return got;
}

// Warns once per program.
void WarnNoDevNull(int error) {
  static bool told = false;
  if (__atomic_exchange_n(&told, true, __ATOMIC_RELAXED)) return;
  char text[256];
  const int length =
      snprintf(text, sizeof(text),
               "rxe_user: cannot open /dev/null: %s: this program does not "
               "see our devices in /sys and /dev\n",
               strerror(error));
  if (length > 0) syscall(SYS_write, 2, text, length);
}

// The environment variables that the helper uses.
bool IsForHelper(const char* variable) {
  return strncmp(variable, "RXE_USER_", 9) == 0 ||
         strncmp(variable, "XDG_RUNTIME_DIR=", 16) == 0;
}

}  // namespace

bool RunHelper(const char* helper, pid_t pid, Task task,
               char (&answer)[kRootSize]) {
  if (helper[0] == 0) return false;
  constexpr size_t kMapped = 3 * kStack;
  void* memory = mmap(nullptr, kMapped, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) return false;
  static_assert(sizeof(Start) <= kStack);
  Start& start = *new (memory) Start{};
  char* const stacks = static_cast<char*>(memory) + kStack;
  start.helper = helper;
  start.stack = stacks + 2 * kStack;
  char* digit = start.number + sizeof(start.number);
  *--digit = 0;
  for (pid_t rest = pid; rest > 0; rest /= 10) {
    *--digit = static_cast<char>('0' + rest % 10);
  }
  static char name[] = "rxe-user", command[] = "view", user[] = "--for",
              leave[] = "--leave", lazy[] = "--lazy", counters[] = "--counters",
              known[] = "--known-devices";
  const bool counts =
      task == Task::kCounters || task == Task::kIndexAndCounters;
  char* const argv[] = {name,
                        command,
                        user,
                        digit,
                        task == Task::kLeave ? leave : lazy,
                        counts ? counters : nullptr,
                        task == Task::kCounters ? known : nullptr};
  static_assert(sizeof(argv) < sizeof(start.argv));  // the rest is null
  memcpy(start.argv, argv, sizeof(argv));
  int variables = 0;
  for (char** v = environ; v != nullptr && *v != nullptr; ++v) {
    if (variables < kMaxVariables && IsForHelper(*v)) {
      start.envp[variables++] = *v;
    }
  }
  size_t got = Run(&start, stacks + kStack, answer, kRootSize);
  const int null_error = start.null_error;
  munmap(memory, kMapped);
  if (null_error != 0) WarnNoDevNull(null_error);
  if (got == 0 || answer[0] != '/') return false;
  if (answer[got - 1] == '\n') --got;
  answer[got] = 0;
  return true;
}

}  // namespace view
