// Who notices what arrives at a lane: one enum, and the events that change it.
// docs/design/progress.md draws it.
#ifndef RXE_USER_PROGRESS_MODE_H_
#define RXE_USER_PROGRESS_MODE_H_

#include <atomic>
#include <cstdint>

namespace rxe_user {

enum class Mode : uint8_t {
  kClosed,       // nobody: there are no sockets
  kArmed,        // the helper thread, woken by the sockets
  kPolling,      // the application, by polling; the helper checks that it does
  kBusyPolling,  // the helper, which polls the sockets by itself
  kWaiter,       // threads that block in WaitReadable, woken by the sockets
};

// Events are told with the lane locked. mode() may be read without, as a hint,
// and is ordered with the lane's other sequentially consistent variables.
class ModeMachine {
 public:
  Mode mode() const { return mode_.load(); }
  bool is(Mode mode) const { return this->mode() == mode; }
  int waiters() const { return waiters_; }

  void OnOpened() { mode_ = Mode::kArmed; }
  void OnClosed() {
    mode_ = Mode::kClosed;
    waiters_ = 0;
  }
  // A thread is about to block, or has stopped. Not while closed.
  void OnWaiterCame() {
    ++waiters_;
    if (!is(Mode::kPolling)) mode_ = Mode::kWaiter;
  }
  void OnWaiterLeft() {
    --waiters_;
    if (!is(Mode::kPolling)) mode_ = Unattended();
  }
  // The helper has seen to the lane, and found out whether the application
  // polls, and if not, whether more is to be expected at once. Not while
  // closed.
  void OnHelperRan(bool application_polls, bool more_is_near) {
    if (application_polls) {
      mode_ = Mode::kPolling;
    } else if (more_is_near && waiters_ == 0) {
      mode_ = Mode::kBusyPolling;
    } else {
      mode_ = Unattended();
    }
  }
  // The application has said that it stops polling.
  void OnLeaseDropped() {
    if (is(Mode::kPolling)) mode_ = Unattended();
  }

 private:
  // Without an application or a helper that polls.
  Mode Unattended() const {
    return waiters_ != 0 ? Mode::kWaiter : Mode::kArmed;
  }

  std::atomic<Mode> mode_ = Mode::kClosed;
  int waiters_ = 0;
};

}  // namespace rxe_user

#endif  // RXE_USER_PROGRESS_MODE_H_
