#include "rxe_user/broker/short_waits.h"

#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

namespace rxe_user::broker {
namespace {

constexpr long kTickNs = 100'000;

// Called by syscall(2), since versions of the C library differ in the library
// that contains these functions.
class Ticker {
 public:
  Ticker() {
    const int signal_number = SIGRTMIN + 1;
    struct sigaction nothing {};
    nothing.sa_handler = [](int) {};
    nothing.sa_flags = SA_RESTART;
    sigset_t ours;
    sigemptyset(&ours);
    sigaddset(&ours, signal_number);
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = signal_number;
    event.sigev_notify_thread_id = static_cast<int>(syscall(SYS_gettid));
    made_ = sigaction(signal_number, &nothing, nullptr) == 0 &&
            pthread_sigmask(SIG_UNBLOCK, &ours, nullptr) == 0 &&
            syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &timer_) == 0;
  }
  ~Ticker() {
    if (made_) syscall(SYS_timer_delete, timer_);
  }
  void Begin() {
    if (depth_++ == 0) Set(kTickNs);
  }
  void End() {
    if (--depth_ == 0) Set(0);
  }

 private:
  void Set(long interval_ns) {
    const itimerspec time = {.it_interval = {0, interval_ns},
                             .it_value = {0, interval_ns}};
    if (made_) syscall(SYS_timer_settime, timer_, 0, &time, nullptr);
  }

  bool made_ = false;
  int timer_ = 0;  // the kernel's timer ID
  int depth_ = 0;
};

Ticker& TickerOfThread() {
  thread_local Ticker ticker;
  return ticker;
}

}  // namespace

ShortWaits::ShortWaits(bool wanted) : wanted_(wanted) {
  if (wanted_) TickerOfThread().Begin();
}

ShortWaits::~ShortWaits() {
  if (wanted_) TickerOfThread().End();
}

}  // namespace rxe_user::broker
