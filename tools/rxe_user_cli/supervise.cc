#include "tools/rxe_user_cli/supervise.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

namespace rxe_user_cli {
namespace {

// Signals that the terminal sends to the process group in its foreground.
bool IsOfTerminal(int signal) {
  constexpr int kAll[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGTSTP,
                          SIGTTIN, SIGTTOU, SIGCONT, SIGWINCH};
  return std::ranges::find(kAll, signal) != std::end(kAll);
}

// All signals but those of this process's own errors, which are not blocked.
sigset_t AllButFaults() {
  sigset_t set;
  ::sigfillset(&set);
  for (const int signal :
       {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) {
    ::sigdelset(&set, signal);
  }
  return set;
}

bool HasTerminal() {
  const int terminal = ::open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
  if (terminal >= 0) ::close(terminal);
  return terminal >= 0;
}

// Stops this process, since the program was stopped, until it is continued.
void StopToo(int signal) {
  if (signal != SIGTSTP && signal != SIGTTIN && signal != SIGTTOU) return;
  // Without job control, nothing would continue this process.
  if (HasTerminal()) ::raise(SIGSTOP);
}

int Watch(pid_t child, const sigset_t& signals) {
  for (;;) {
    siginfo_t info{};
    const int signal = ::sigwaitinfo(&signals, &info);
    if (signal < 0) continue;  // EINTR
    if (signal == SIGCHLD) {
      int status = 0;
      while (::waitpid(child, &status, WNOHANG | WUNTRACED) == child) {
        if (!WIFSTOPPED(status)) return status;
        StopToo(WSTOPSIG(status));
      }
      continue;
    }
    const bool has_it = info.si_code == SI_KERNEL && IsOfTerminal(signal);
    if (!has_it && info.si_pid != child) ::kill(child, signal);
  }
}

volatile sig_atomic_t stop_waiting = 0;
void OnSignal(int signal) {
  if (signal != SIGALRM) stop_waiting = 1;
}

int64_t MonotonicMs() {
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * int64_t{1000} + t.tv_nsec / 1'000'000;
}

}  // namespace

std::optional<int> Supervise(const std::function<int()>& execute) {
  const sigset_t signals = AllButFaults();
  sigset_t mask_before;
  ::sigprocmask(SIG_BLOCK, &signals, &mask_before);
  // While SIGCHLD is ignored, the kernel does not report ended children.
  struct sigaction as_usual {};
  as_usual.sa_handler = SIG_DFL;
  struct sigaction children_before {};
  ::sigaction(SIGCHLD, &as_usual, &children_before);
  const pid_t self = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return std::nullopt;
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != self) ::_exit(128 + SIGKILL);
    ::sigaction(SIGCHLD, &children_before, nullptr);
    ::sigprocmask(SIG_SETMASK, &mask_before, nullptr);
    ::_exit(execute());
  }
  return Watch(child, signals);
}

int ExitStatusOf(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status)
                                  : WEXITSTATUS(wait_status);
}

std::vector<std::string> AwaitUnlocked(const std::string& folder, int seconds) {
  // flock(2) has no time limit, so a timer interrupts it. The timer repeats,
  // since the first signal may arrive before the call.
  struct sigaction handler {};
  handler.sa_handler = OnSignal;
  sigset_t ending;
  ::sigemptyset(&ending);
  for (const int signal : {SIGALRM, SIGHUP, SIGINT, SIGTERM}) {
    ::sigaction(signal, &handler, nullptr);
    ::sigaddset(&ending, signal);
  }
  ::sigprocmask(SIG_UNBLOCK, &ending, nullptr);
  itimerval timer{};
  timer.it_value.tv_usec = timer.it_interval.tv_usec = 100'000;
  ::setitimer(ITIMER_REAL, &timer, nullptr);
  const int64_t until = MonotonicMs() + seconds * int64_t{1000};
  std::vector<std::string> locked;
  // Repeat until a whole round finds no lock: a process may have started
  // others.
  for (bool waited = true; waited;) {
    waited = false;
    locked.clear();
    std::error_code error;
    for (const auto& entry :
         std::filesystem::directory_iterator(folder, error)) {
      const int file = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
      if (file < 0) continue;
      bool free = ::flock(file, LOCK_SH | LOCK_NB) == 0;
      while (!free && stop_waiting == 0 && MonotonicMs() < until) {
        waited = true;
        free = ::flock(file, LOCK_SH) == 0;
      }
      if (!free) locked.push_back(entry.path());
      ::close(file);
    }
  }
  timer = {};
  ::setitimer(ITIMER_REAL, &timer, nullptr);
  ::sigprocmask(SIG_BLOCK, &ending, nullptr);
  return locked;
}

}  // namespace rxe_user_cli
