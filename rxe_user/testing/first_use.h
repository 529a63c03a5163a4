// The first use of something in a child of fork(), which inherits a first use
// of another thread halfway.
#ifndef RXE_USER_TESTING_FIRST_USE_H_
#define RXE_USER_TESTING_FIRST_USE_H_

#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <optional>
#include <utility>

#include "rxe_user/base/fork_guard.h"
#include "rxe_user/testing/watched_thread.h"

namespace rxe_user {

// During fork(), starts a thread that calls `use`, and waits until it is
// blocked: it cannot enter a guard.
class UseDuringFork final : private ForkGuard {
 public:
  explicit UseDuringFork(std::function<void()> use)
      : ForkGuard(ForkLevel::kLeafLocks), use_(std::move(use)) {
    EnterForkGuard();
  }
  ~UseDuringFork() { LeaveForkGuard(); }

  bool blocked() const { return blocked_; }
  void Join() {
    if (thread_.has_value()) thread_->join();
  }

 private:
  void BeforeFork() override {
    thread_.emplace(use_);
    blocked_ = thread_->AwaitSleep();
  }
  void AfterForkInParent() override {}
  void AfterForkInChild() override {}

  const std::function<void()> use_;
  std::optional<WatchedThread> thread_;
  bool blocked_ = false;
};

// Calls `use`, which the process must not have called yet, in a child of a fork
// in which another thread is in its first call. Returns the child's status,
// which is 0 if the call has returned; -1 if that thread was not blocked.
inline int StatusOfFirstUseInChild(const std::function<void()>& use) {
  constexpr unsigned kSeconds = 20;
  UseDuringFork during(use);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(kSeconds);
    use();
    ::_exit(0);
  }
  during.Join();
  int status = -1;
  if (::waitpid(child, &status, 0) != child || !during.blocked()) return -1;
  return status;
}

}  // namespace rxe_user

#endif  // RXE_USER_TESTING_FIRST_USE_H_
