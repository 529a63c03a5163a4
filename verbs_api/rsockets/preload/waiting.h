// Deadlines and signal masks of calls that wait.
#ifndef VERBS_API_RSOCKETS_PRELOAD_WAITING_H_
#define VERBS_API_RSOCKETS_PRELOAD_WAITING_H_

#include <signal.h>
#include <time.h>

#include <chrono>
#include <optional>

namespace rspreload {

using Clock = std::chrono::steady_clock;
// When waiting ends. Absent: never.
using Deadline = std::optional<Clock::time_point>;

// From the timeout of poll(2) in ms, or of ppoll(2), which may be null.
Deadline DeadlineOf(int milliseconds);
Deadline DeadlineOf(const timespec* timeout);
bool IsOver(const Deadline& deadline);
// The time left: in ms, rounded up, -1 for no limit; and exact.
int MillisecondsLeft(const Deadline& deadline);
timespec TimeLeft(const Deadline& deadline);

// The signal mask of ppoll(2), pselect(2) and epoll_pwait(2). Signals that it
// unblocks stay blocked during the wait; a descriptor becomes readable when one
// arrives or is pending. So no signal is lost between setting the mask and
// waiting. The destructor restores the mask and keeps errno.
//
// Thread: the one that waits.
class WaitMask {
 public:
  // Null: the mask does not change.
  explicit WaitMask(const sigset_t* mask);
  ~WaitMask();
  WaitMask(const WaitMask&) = delete;
  WaitMask& operator=(const WaitMask&) = delete;

  // False, with errno, if no descriptor is left.
  bool ok() const { return ok_; }
  // Readable when a signal is pending; -1 if none can unblock.
  int fd() const { return fd_; }
  // The descriptor was readable: delivers the signals. Returns true if a
  // handler has run: then the wait ends with EINTR.
  bool Take();

 private:
  sigset_t wanted_;  // the requested mask
  sigset_t before_;
  sigset_t accepted_;  // blocked before and not in `wanted_`
  bool set_ = false;
  bool ok_ = true;
  int fd_ = -1;
};

}  // namespace rspreload

#endif  // VERBS_API_RSOCKETS_PRELOAD_WAITING_H_
