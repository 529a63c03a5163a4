#include "verbs_api/rsockets/preload/signals.h"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "verbs_api/rsockets/preload/real.h"

namespace rspreload {
namespace {

using Handler = void (*)(int, siginfo_t*, void*);

// By signal: the program's handler, and whether it asked for SA_SIGINFO.
struct Installed {
  std::atomic<Handler> handler{nullptr};
  std::atomic<bool> with_info{false};
};
Installed installed[_NSIG];

// In the static block of a thread: handlers read it.
#define OF_THREAD thread_local __attribute__((tls_model("initial-exec")))
OF_THREAD int calls = 0;
// Signals that wait for the end of the call: blocked, and sent to the thread
// once more.
OF_THREAD bool any_waits = false;
OF_THREAD sigset_t waiting;

// In place of the program's handlers.
void OnSignal(int signal, siginfo_t* info, void* context) {
  if (calls == 0)
    return installed[signal].handler.load()(signal, info, context);
  const int error = errno;
  if (!any_waits) sigemptyset(&waiting);
  any_waits = true;
  sigaddset(&waiting, signal);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  pthread_sigmask(SIG_BLOCK, &one, nullptr);  // SA_NODEFER
  sigaddset(&static_cast<ucontext_t*>(context)->uc_sigmask, signal);
  syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), signal, info);
  errno = error;
}

// What comes of what the thread itself does cannot wait.
bool CanWait(int signal) {
  switch (signal) {
    case SIGSEGV:
    case SIGBUS:
    case SIGFPE:
    case SIGILL:
    case SIGTRAP:
    case SIGSYS:
    case SIGABRT:
      return false;
    default:
      return signal > 0 && signal < _NSIG;
  }
}

bool IsHandler(const struct sigaction& action) {
  return action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
}

// sigaction(2). A handler for one signal alone (SA_RESETHAND) is left as it is.
int Install(int signal, const struct sigaction* wanted,
            struct sigaction* before) {
  if (!CanWait(signal)) return REAL(sigaction)(signal, wanted, before);
  Installed& place = installed[signal];
  const Handler handler = place.handler.load();
  const bool with_info = place.with_info.load();
  struct sigaction action;
  if (wanted != nullptr) {
    action = *wanted;
    if (IsHandler(action) && (action.sa_flags & SA_RESETHAND) == 0) {
      place.handler.store(action.sa_sigaction);
      place.with_info.store((action.sa_flags & SA_SIGINFO) != 0);
      action.sa_sigaction = OnSignal;
      action.sa_flags |= SA_SIGINFO;
    }
  }
  struct sigaction old;
  const int result =
      REAL(sigaction)(signal, wanted != nullptr ? &action : nullptr, &old);
  if (result != 0) {
    place.handler.store(handler);
    place.with_info.store(with_info);
    return result;
  }
  if (before == nullptr) return 0;
  *before = old;
  if (old.sa_sigaction == OnSignal) {
    before->sa_sigaction = handler;
    if (!with_info) before->sa_flags &= ~SA_SIGINFO;
  }
  return 0;
}

}  // namespace

RsocketCall::RsocketCall() { ++calls; }

RsocketCall::~RsocketCall() {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  --calls;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (__builtin_expect(!any_waits || calls != 0, 1)) return;
  const int error = errno;
  any_waits = false;
  const sigset_t come = waiting;
  pthread_sigmask(SIG_UNBLOCK, &come, nullptr);  // here they do
  errno = error;
}

}  // namespace rspreload

PRELOADED int sigaction(int signal, const struct sigaction* wanted,
                        struct sigaction* before) noexcept {
  return rspreload::Install(signal, wanted, before);
}

PRELOADED sighandler_t signal(int signal, sighandler_t handler) noexcept {
  struct sigaction action = {}, before;
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaddset(&action.sa_mask, signal);
  return rspreload::Install(signal, &action, &before) == 0 ? before.sa_handler
                                                           : SIG_ERR;
}
