// For an application that polls for its completion and then, without a word,
// waits for its memory to change: the sockets are armed while it polls.
#ifndef RXE_USER_PROGRESS_ADAPTIVE_ARMING_H_
#define RXE_USER_PROGRESS_ADAPTIVE_ARMING_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "transport/base/types.h"

namespace rxe_user {

// While active(), a poll that brings something arms the sockets and polls that
// bring nothing disarm them: a system call each, against what arrives waiting
// for the helper's next check. It pays for ib_write_lat 64 KB, 48 us rather
// than 97; 64 B and 4 KB go without.
//
// Lane locked; active() may be read without, as a hint, and the helper calls
// OnFoundPolling() without.
class AdaptiveArming {
 public:
  // Each missed arrival adds so much to a sum, from which each check that finds
  // the application polling takes one,
  static constexpr int kMissedWeight = 3;
  // and which makes this active: the third that is missed in a row.
  static constexpr int kManyMissed = 7;
  // So many polls in a row that found nothing show that the application polls
  // again: the first follows what it got anyway.
  static constexpr int kEmptyPolls = 2;
  // It ends when the sockets were armed so often in a row for nothing: the
  // application was back before anything came, and had but lost its core when
  // it was taken for one that stops.
  static constexpr int kSpurious = 16;
  // Meanwhile an application counts as polling for so long after its last call:
  // longer than the longest interval between checks.
  static constexpr transport::Time kLease = 6 * transport::kMillisecond;

  bool active() const { return active_.load(kRelaxed); }
  bool armed() const { return armed_; }

  // The helper found what had lain since the application stopped polling.
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
  // The helper took in what it was woken for. `calls`: of the application so
  // far.
  void OnWoken(uint32_t calls) {
    if (armed_ && calls == calls_at_arming_) spurious_ = 0;
  }
  // While active: a poll has ended.
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
  // The application does not do what this is for.
  void End() {
    active_.store(false, kRelaxed);
    missed_.store(0, kRelaxed);
    armed_ = false;
  }
  // The application no longer counts as polling, or only begins to.
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
