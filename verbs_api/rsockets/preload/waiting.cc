#include "verbs_api/rsockets/preload/waiting.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "verbs_api/rsockets/preload/real.h"

namespace rspreload {
namespace {

bool HasHandler(int signal) {
  struct sigaction action;
  return sigaction(signal, nullptr, &action) == 0 &&
         action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
}

}  // namespace

Deadline DeadlineOf(int milliseconds) {
  if (milliseconds < 0) return std::nullopt;
  return Clock::now() + std::chrono::milliseconds(milliseconds);
}

Deadline DeadlineOf(const timespec* timeout) {
  if (timeout == nullptr) return std::nullopt;
  constexpr time_t kLong = 1000000000;  // about 30 years; avoids overflow
  return Clock::now() + std::chrono::seconds(std::min(timeout->tv_sec, kLong)) +
         std::chrono::nanoseconds(timeout->tv_nsec);
}

bool IsOver(const Deadline& deadline) {
  return deadline.has_value() && *deadline <= Clock::now();
}

int MillisecondsLeft(const Deadline& deadline) {
  if (!deadline.has_value()) return -1;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, INT_MAX));
}

timespec TimeLeft(const Deadline& deadline) {
  const auto left = std::max<Clock::duration>(*deadline - Clock::now(),
                                              Clock::duration::zero());
  const auto seconds = std::chrono::floor<std::chrono::seconds>(left);
  return {.tv_sec = seconds.count(), .tv_nsec = (left - seconds).count()};
}

WaitMask::WaitMask(const sigset_t* mask) {
  if (mask == nullptr) return;
  wanted_ = *mask;
  pthread_sigmask(SIG_BLOCK, mask, &before_);
  set_ = true;
  sigemptyset(&accepted_);
  bool any = false;
  for (int signal = 1; signal < _NSIG; ++signal) {
    if (sigismember(&before_, signal) == 1 && sigismember(mask, signal) == 0) {
      sigaddset(&accepted_, signal);
      any = true;
    }
  }
  if (!any) return;
  fd_ = signalfd(-1, &accepted_, SFD_CLOEXEC | SFD_NONBLOCK);
  ok_ = fd_ >= 0;
}

WaitMask::~WaitMask() {
  const int error = errno;
  if (fd_ >= 0) REAL(close)(fd_);
  if (set_) pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  errno = error;
}

bool WaitMask::Take() {
  sigset_t pending;
  sigpending(&pending);
  bool handled = false;
  for (int signal = 1; signal < _NSIG; ++signal) {
    handled |= sigismember(&accepted_, signal) == 1 &&
               sigismember(&pending, signal) == 1 && HasHandler(signal);
  }
  // Pending signals are delivered here.
  pthread_sigmask(SIG_SETMASK, &wanted_, nullptr);
  pthread_sigmask(SIG_BLOCK, &before_, nullptr);
  return handled;
}

}  // namespace rspreload
