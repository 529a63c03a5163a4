// Which thread notices arrivals at a lane: one enum, and the events that change
// it (docs/design/progress.md, "Modes").
#ifndef RXE_USER_PROGRESS_MODE_H_
#define RXE_USER_PROGRESS_MODE_H_

#include <atomic>
#include <cstdint>

namespace rxe_user {

enum class Mode : uint8_t {
  kClosed,       // none: there are no sockets
  kArmed,        // the helper thread, woken by the sockets
  kPolling,      // the application, by polling; the helper checks that it does
  kBusyPolling,  // the helper, which polls the sockets and does not sleep
  kWaiter,       // threads that block in WaitReadable, woken by the sockets
};

// The On... functions are called with the lane locked. mode() may be read
// without the lock, as a hint; it is sequentially consistent with the lane's
// other variables of that kind (helper_wake_, the batch's deadline).
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
  // A thread is about to block, or no longer blocks. Not while closed.
  void OnWaiterCame() {
    ++waiters_;
    if (!is(Mode::kPolling)) mode_ = Mode::kWaiter;
  }
  void OnWaiterLeft() {
    --waiters_;
    if (!is(Mode::kPolling)) mode_ = Unattended();
  }
  // The helper has made a round. It found whether the application polls, and if
  // not, whether it expects more arrivals at once (BusyPoll). Not while closed.
  void OnHelperRan(bool application_polls, bool more_is_near) {
    if (application_polls) {
      mode_ = Mode::kPolling;
    } else if (more_is_near && waiters_ == 0) {
      mode_ = Mode::kBusyPolling;
    } else {
      mode_ = Unattended();
    }
  }
  // The application has stopped polling: it requested an event, or blocks.
  void OnLeaseDropped() {
    if (is(Mode::kPolling)) mode_ = Unattended();
  }

 private:
  // The mode in which neither the application nor the helper polls.
  Mode Unattended() const {
    return waiters_ != 0 ? Mode::kWaiter : Mode::kArmed;
  }

  std::atomic<Mode> mode_ = Mode::kClosed;
  int waiters_ = 0;
};

}  // namespace rxe_user

#endif  // RXE_USER_PROGRESS_MODE_H_
