#include "rxe_user/broker/spawn.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <utility>
#include <vector>

#include "rxe_user/base/environment.h"
#include "rxe_user/base/errno_status.h"

extern char** environ;

#ifdef __SANITIZE_THREAD__
// ThreadSanitizer treats clone() as a fork(), and ends a process that starts a
// thread afterwards. This is the C library's internal name of clone().
extern "C" int __clone(int (*)(void*), void*, int, void*, ...);
#define clone __clone
#endif

namespace rxe_user::broker {
namespace {

constexpr size_t kStackBytes = 64 << 10;

// Shared by the two children and their suspended parent.
struct Plan {
  const char* path;
  char* const* argv;
  char* const* envp;
  int ready_fd;
  void* stack_top;             // the second child's
  int error = 0;               // errno of the step that failed
  const char* what = nullptr;  // that step, unless it is `path`
};

// The children use the parent's memory and thread-local data, so they use plain
// system calls only, bypassing replacements of the C library's functions.
#define IN_CHILD __attribute__((no_sanitize("address", "thread", "undefined")))

// Becomes the broker.
IN_CHILD int ExecBroker(void* argument) {
  Plan& plan = *static_cast<Plan*>(argument);
  constexpr int kAside = 10;
  const long ready = syscall(SYS_fcntl, plan.ready_fd, F_DUPFD, kAside);
  const long null = syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR, 0);
  if (null < 0) plan.what = "cannot open /dev/null";
  if (ready < 0 || null < 0 || (null != 0 && syscall(SYS_dup3, null, 0, 0)) ||
      (null != 1 && syscall(SYS_dup3, null, 1, 0) != 1) ||
      (null != 2 && syscall(SYS_dup3, null, 2, 0) != 2) ||
      syscall(SYS_dup3, ready, kReadyFd, 0) != kReadyFd ||
      syscall(SYS_chdir, "/") != 0) {
    plan.error = errno;
    syscall(SYS_exit_group, 1);
  }
  if (syscall(SYS_close_range, kReadyFd + 1, ~0u, 0) != 0) {
    for (int fd = kReadyFd + 1; fd < 65536; ++fd) syscall(SYS_close, fd);
  }
  syscall(SYS_execve, plan.path, plan.argv, plan.envp);
  plan.error = errno;
  syscall(SYS_exit_group, 1);
  return 1;
}

// Exits at once, so that the broker is orphaned and is no child of the
// application.
IN_CHILD int StartBroker(void* argument) {
  Plan& plan = *static_cast<Plan*>(argument);
  syscall(SYS_setsid);
  if (clone(ExecBroker, plan.stack_top, CLONE_VM | CLONE_VFORK | SIGCHLD,
            argument) < 0) {
    plan.error = errno;
  }
  syscall(SYS_exit_group, 0);
  return 0;
}

// The absolute path of the file that contains this code.
std::string OwnFile() {
  Dl_info info{};
  const auto here = reinterpret_cast<uintptr_t>(&OwnFile);
  if (dladdr(reinterpret_cast<void*>(here), &info) != 0 &&
      info.dli_fname != nullptr && info.dli_fname[0] == '/') {
    return info.dli_fname;
  }
  // The library was loaded by a relative path, and the working directory may
  // have changed since.
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    unsigned long first, last;
    const size_t slash = line.find('/');
    if (slash != std::string::npos &&
        std::sscanf(line.c_str(), "%lx-%lx", &first, &last) == 2 &&
        first <= here && here < last) {
      return line.substr(slash);
    }
  }
  return "";
}

}  // namespace

std::string BrokerPath() {
  const char* path = Environment("RXE_USER_BROKER");
  if (path != nullptr && path[0] != 0) {
    std::error_code error;
    const auto absolute = std::filesystem::absolute(path, error);
    return error ? path : absolute.string();
  }
  const std::unique_ptr<char, decltype(&std::free)> real(
      realpath(OwnFile().c_str(), nullptr), &std::free);
  const std::filesystem::path file = real != nullptr ? real.get() : "/";
  return file.parent_path().parent_path() / "libexec/rxe-user-port-broker";
}

absl::Status SpawnBroker(UniqueFd& starting) {
  const std::string path = BrokerPath();
  const auto failed = [&](int error, const char* what = nullptr) {
    std::string part = "cannot start " + path;
    if (what != nullptr) part += std::string(": ") + what;
    if (error == EMFILE || error == ENFILE) return ErrnoStatus(error, part);
    const std::string text = part + ": " + std::strerror(error);
    return error == EACCES || error == EPERM ? absl::PermissionDeniedError(text)
                                             : absl::NotFoundError(text);
  };
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return failed(errno);
  UniqueFd read_end(ends[0]);
  const UniqueFd write_end(ends[1]);
  std::string name = "rxe-user-port-broker";
  std::string ready = kReadyArgument;
  std::array<char*, 3> argv = {name.data(), ready.data(), nullptr};
  std::vector<char*> envp;
  char** const ours = IsSecureProgram() ? nullptr : environ;
  for (char** e = ours; e != nullptr && *e != nullptr; ++e) {
    if (std::strncmp(*e, "RXE_USER_", 9) == 0) envp.push_back(*e);
  }
  envp.push_back(nullptr);
  const std::unique_ptr<char[]> stacks(new char[2 * kStackBytes]);
  const auto top = [&](size_t i) {
    const auto end =
        reinterpret_cast<uintptr_t>(stacks.get()) + i * kStackBytes;
    return reinterpret_cast<void*>(end & ~uintptr_t{63});
  };
  Plan plan{path.c_str(), argv.data(), envp.data(), write_end.get(), top(2)};

  // No signal handler may run in a child. The broker unblocks its signals.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  // Without an exit signal there is no SIGCHLD, and only a wait with __WCLONE
  // sees the child.
  constexpr int kFlags = CLONE_VM | CLONE_VFORK;
  int child = clone(StartBroker, top(1), kFlags, &plan);
  // qemu-user turns this into a fork, which needs an exit signal; the program
  // may then see SIGCHLD.
  if (child < 0 && errno == EINVAL) {
    child = clone(StartBroker, top(1), kFlags | SIGCHLD, &plan);
  }
  int error = child < 0 ? errno : 0;
  if (child >= 0) {
    while (waitpid(child, nullptr, __WALL) < 0 && errno == EINTR) {
    }
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error == 0) error = plan.error;
  if (error != 0) return failed(error, plan.what);
  starting = std::move(read_end);
  return absl::OkStatus();
}

Progress AwaitBroker(const UniqueFd& starting, int64_t wait_ms,
                     std::string& why) {
  pollfd p{starting.get(), POLLIN, 0};
  if (poll(&p, 1, static_cast<int>(std::max<int64_t>(wait_ms, 0))) <= 0) {
    return Progress::kComingUp;
  }
  // Only the broker has the write end. It writes once, an amount that fits in a
  // pipe.
  char said[512];
  const ssize_t n = read(starting.get(), said, sizeof(said));
  if (n > 0 && said[0] == kServesByte) return Progress::kServes;
  if (n > 1) why.assign(said + 1, static_cast<size_t>(n - 1));
  return Progress::kDied;
}

}  // namespace rxe_user::broker
