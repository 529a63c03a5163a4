// What calls that wait have in common: until when, and with which signal mask.
#ifndef VERBS_API_RSOCKETS_PRELOAD_WAITING_H_
#define VERBS_API_RSOCKETS_PRELOAD_WAITING_H_

#include <signal.h>
#include <time.h>

#include <chrono>
#include <optional>

namespace rspreload {

using Clock = std::chrono::steady_clock;
// When waiting ends; nothing: never.
using Deadline = std::optional<Clock::time_point>;

// Of a time-out as poll(2) has it, in ms, and as ppoll(2) has it, or null.
Deadline DeadlineOf(int milliseconds);
Deadline DeadlineOf(const timespec* timeout);
bool IsOver(const Deadline& deadline);
// What is left: in ms, rounded up, -1 for ever; and exactly.
int MillisecondsLeft(const Deadline& deadline);
timespec TimeLeft(const Deadline& deadline);

// The signal mask of ppoll(2), pselect(2) and epoll_pwait(2). The signals that
// it lets through and that were blocked stay blocked, and a descriptor says
// when one has come, or was there before: so none slips in between the mask and
// the wait. The mask is as before when this ends; errno stays.
//
// Thread: the one that waits.
class WaitMask {
 public:
  // Null: nothing changes.
  explicit WaitMask(const sigset_t* mask);
  ~WaitMask();
  WaitMask(const WaitMask&) = delete;
  WaitMask& operator=(const WaitMask&) = delete;

  // False, with errno: there is no descriptor left.
  bool ok() const { return ok_; }
  // Readable when there is a signal; -1 if none is waited for.
  int fd() const { return fd_; }
  // It was readable: the signals are taken. True if a handler has run: then
  // the wait ends with EINTR.
  bool Take();

 private:
  sigset_t wanted_;  // the mask that was asked for
  sigset_t before_;
  sigset_t accepted_;  // that were blocked, and are not in `wanted_`
  bool set_ = false;
  bool ok_ = true;
  int fd_ = -1;
};

}  // namespace rspreload

#endif  // VERBS_API_RSOCKETS_PRELOAD_WAITING_H_
