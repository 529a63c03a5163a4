// Arms the sockets of an application that polls. Such an application may stop
// without a call, to wait for its memory to change; only an armed socket wakes
// the helper then.
#ifndef RXE_USER_PROGRESS_ADAPTIVE_ARMING_H_
#define RXE_USER_PROGRESS_ADAPTIVE_ARMING_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "transport/base/types.h"

namespace rxe_user {

// While active(), a poll that finds something arms the sockets, and polls that
// find nothing disarm them. Each is a system call; without them, arrivals wait
// for the helper's next check. ib_write_lat 64 KB takes 48 us with this class
// and 97 without; 64 B and 4 KB never activate it.
//
// The lane's lock guards it; active() may be read without the lock, as a hint,
// and the helper calls OnFoundPolling() without it.
class AdaptiveArming {
 public:
  // Added to a sum for each missed arrival. Each check that finds the
  // application polling subtracts 1.
  static constexpr int kMissedWeight = 3;
  // The sum that activates this: 3 misses in a row reach it.
  static constexpr int kManyMissed = 7;
  // This many polls in a row that find nothing mean that the application polls
  // again. The first one follows each completion anyway.
  static constexpr int kEmptyPolls = 2;
  // This ends after the sockets were armed this often in a row for nothing: the
  // application polled again before anything arrived. It had only been
  // preempted when it seemed to have stopped.
  static constexpr int kSpurious = 16;
  // While active, an application counts as polling for this long after its last
  // call. This is longer than the longest check interval.
  static constexpr transport::Time kLease = 6 * transport::kMillisecond;

  bool active() const { return active_.load(kRelaxed); }
  bool armed() const { return armed_; }

  // The helper found an arrival from after the application stopped polling.
  void OnMissedArrival() {
    const int missed =
        std::min(missed_.load(kRelaxed) + kMissedWeight, kManyMissed);
    missed_.store(missed, kRelaxed);
    if (missed < kManyMissed) return;
    active_.store(true, kRelaxed);
    spurious_ = 0;
    Arm();
  }
  // The helper's check found it polling.
  void OnFoundPolling() {
    missed_.store(std::max(missed_.load(kRelaxed) - 1, 0), kRelaxed);
  }
  // The helper received what a socket woke it for. `calls`: the application's
  // polls and posts so far.
  void OnWoken(uint32_t calls) {
    if (armed_ && calls == calls_at_arming_) spurious_ = 0;
  }
  // While active: a poll has ended. `useful`: it found something.
  void OnPoll(bool useful, uint32_t calls) {
    const bool back = armed_ && (useful || ++empty_polls_ == kEmptyPolls);
    if (useful) {
      calls_at_arming_ = calls;
      Arm();
    } else if (back) {
      armed_ = false;
    }
    if (back && ++spurious_ == kSpurious) End();
  }
  // The application does not stop polling without a call after all.
  void End() {
    active_.store(false, kRelaxed);
    missed_.store(0, kRelaxed);
    armed_ = false;
  }
  // The application no longer counts as polling, or only starts to.
  void Disarm() { armed_ = false; }

 private:
  static constexpr std::memory_order kRelaxed = std::memory_order_relaxed;

  void Arm() {
    if (!armed_) empty_polls_ = 0;
    armed_ = true;
  }

  std::atomic<bool> active_ = false;
  bool armed_ = false;
  std::atomic<int> missed_ = 0;
  int empty_polls_ = 0;  // in a row, while armed
  int spurious_ = 0;     // in a row
  uint32_t calls_at_arming_ = 0;
};

}  // namespace rxe_user

#endif  // RXE_USER_PROGRESS_ADAPTIVE_ARMING_H_
