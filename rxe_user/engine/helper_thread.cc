#include "rxe_user/engine/helper_thread.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/high_fd.h"
#include "rxe_user/base/service_thread.h"
#include "rxe_user/engine/lane.h"

namespace rxe_user {
namespace {

using transport::kNever;
using transport::Time;

// The source of an event.
enum Kind : uint64_t { kWake, kSocket, kTimer };

int Control(int epoll_fd, int operation, int fd, uint32_t events, Kind kind) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = kind;
  return ::epoll_ctl(epoll_fd, operation, fd, &event);
}

// The maximum number of sockets that a port receives from, plus one descriptor
// each of a raw port, a ring and a wrapping port. Reserved in advance, because
// AddSocket must not fail once the port has the socket.
constexpr size_t kMaxSockets = 256 + 3;

}  // namespace

HelperThread::HelperThread(const char* name, Work work)
    : name_(name),
      work_(std::move(work)),
      epoll_fd_(MoveHigh(::epoll_create1(EPOLL_CLOEXEC))),
      wake_fd_(MoveHigh(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))),
      timer_fd_(MoveHigh(
          ::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK))) {
  sockets_.reserve(kMaxSockets);
}

absl::StatusOr<std::unique_ptr<HelperThread>> HelperThread::Create(
    const char* name, Work work) {
  auto helper =
      std::unique_ptr<HelperThread>(new HelperThread(name, std::move(work)));
  // The timer is edge-triggered, so that it need not be read when it has
  // expired.
  if (!helper->epoll_fd_.valid() || !helper->wake_fd_.valid() ||
      !helper->timer_fd_.valid() ||
      Control(helper->epoll_fd_.get(), EPOLL_CTL_ADD, helper->wake_fd_.get(),
              EPOLLIN, kWake) != 0 ||
      Control(helper->epoll_fd_.get(), EPOLL_CTL_ADD, helper->timer_fd_.get(),
              EPOLLIN | EPOLLET, kTimer) != 0) {
    return ErrnoStatus(errno, "helper thread");
  }
  helper->MeasureTimer();
  return helper;
}

HelperThread::~HelperThread() {
  if (!running_) return;
  stop_.store(true, std::memory_order_release);
  Wake();
  ::pthread_join(thread_, nullptr);
}

absl::Status HelperThread::Start() {
  const int error = StartServiceThread<&HelperThread::Run>(&thread_, this);
  if (error != 0) return ErrnoStatus(error, "helper thread");
  running_ = true;
  return absl::OkStatus();
}

void HelperThread::Wake() {
  const uint64_t one = 1;
  // By syscall(2), since write() is a cancellation point and posting must not
  // be. It fails only when the counter is full, and then the thread is awake.
  (void)!::syscall(SYS_write, wake_fd_.get(), &one, sizeof(one));
}

bool HelperThread::AddSocket(int fd, bool armed) {
  sockets_.push_back(fd);
  return !armed || ArmSocket(fd);
}

void HelperThread::RemoveSocket(int fd) {
  std::erase(sockets_, fd);
  (void)::epoll_ctl(epoll_fd_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

// Sockets that do not wake the helper are not in the set at all: even with no
// event requested, the sender of each datagram would take the set's lock.
bool HelperThread::Arm(bool on) {
  bool done = true;
  for (const int fd : sockets_) {
    if (on) {
      done &= ArmSocket(fd);
    } else if (::epoll_ctl(epoll_fd_.get(), EPOLL_CTL_DEL, fd, nullptr) != 0 &&
               errno == EBADF) {
      has_stale_socket_.store(true, std::memory_order_relaxed);
    }
  }
  return done;
}

bool HelperThread::ArmSocket(int fd) {
  return Control(epoll_fd_.get(), EPOLL_CTL_ADD, fd, EPOLLIN, kSocket) == 0 ||
         errno == EEXIST;
}

void HelperThread::AbandonInChild() {
  running_ = false;
  for (UniqueFd* const fd : {&epoll_fd_, &wake_fd_, &timer_fd_}) fd->Reset();
}

void HelperThread::Run() {
  ::pthread_setname_np(::pthread_self(), name_);
  Time until = 0;
  while (!stop_.load(std::memory_order_acquire)) {
    const int count = Sleep(until);
    bool by_socket = false;
    for (int i = 0; i < count; ++i) {
      by_socket |= events_[i] == kSocket;
      if (events_[i] == kWake) {
        uint64_t ignored;
        (void)!::read(wake_fd_.get(), &ignored, sizeof(ignored));
      }
    }
    if (stop_.load(std::memory_order_acquire)) break;
    if (by_socket && has_stale_socket_.load(std::memory_order_relaxed)) {
      SleepBriefly();
    }
    until = work_(by_socket);
  }
}

// Sleeps until an event or `until`. Returns the number of events_.
int HelperThread::Sleep(Time until) {
  epoll_event events[kMaxEvents];
  int count = 0;
  for (bool awake = false; !awake;) {
    const bool due = until <= Lane::Now();
    if (!due && until < timer_) SetTimer(until);
    count = ::epoll_wait(epoll_fd_.get(), events, kMaxEvents, due ? 0 : -1);
    if (count < 0 && errno != EINTR) SleepBriefly();
    awake = due || count < 0;
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 == kTimer) {
        timer_ = kNever;
      } else {
        awake = true;
      }
    }
  }
  wakeups_.fetch_add(1, std::memory_order_relaxed);
  count = std::max(count, 0);
  for (int i = 0; i < count; ++i) events_[i] = events[i].data.u64;
  return count;
}

// A descriptor that the program closed behind our back cannot be waited for:
// sleep briefly instead of spinning.
void HelperThread::SleepBriefly() {
  const timespec time = {0, 10'000'000};
  ::nanosleep(&time, nullptr);
}

// Takes the shortest of several tries, since a busy machine makes some longer.
// The last timer expires, which wakes the thread once.
void HelperThread::MeasureTimer() {
  timer_cost_ = kNever;
  for (int i = 0; i < 8; ++i) {
    const Time start = Lane::Now();
    SetTimer(start + 50 * transport::kMicrosecond);
    timer_cost_ = std::min(timer_cost_, Lane::Now() - start);
  }
  timers_set_.store(0, std::memory_order_relaxed);
}

void HelperThread::SetTimer(Time when) {
  itimerspec at{};
  at.it_value = {static_cast<time_t>(when / transport::kSecond),
                 static_cast<long>(when % transport::kSecond)};
  (void)::timerfd_settime(timer_fd_.get(), TFD_TIMER_ABSTIME, &at, nullptr);
  timer_ = when;
  timers_set_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace rxe_user
