#include "rxe_user/objects/event_queue.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "rxe_user/engine/engine.h"

namespace rxe_user {
namespace {

// By syscall(), since read() and write() are cancellation points: a thread
// that was cancelled there would take its event along. The descriptor's count
// is 1 while events wait and 0 else, so neither blocks nor fails.
void SetReadable(int fd) {
  const uint64_t one = 1;
  syscall(SYS_write, fd, &one, sizeof(one));
}
void ClearReadable(int fd) {
  uint64_t count;
  syscall(SYS_read, fd, &count, sizeof(count));
}

bool IsSame(const Event& a, const Event& b) {
  return a.type == b.type && a.element == b.element && a.account == b.account &&
         a.port == b.port;
}

// Whether a read() that a signal interrupts would go on by itself: all handlers
// of the program were installed with SA_RESTART, as signal() does.
bool SignalsRestart() {
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action;
    if (signal == SIGSEGV || signal == SIGBUS || signal == SIGILL ||
        signal == SIGFPE || signal == SIGTRAP ||
        sigaction(signal, nullptr, &action) != 0) {
      continue;
    }
    const bool handled =
        (action.sa_flags & SA_SIGINFO) != 0 ||
        (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
    if (handled && (action.sa_flags & SA_RESTART) == 0) return false;
  }
  return true;
}

}  // namespace

EventQueue::~EventQueue() { Close(); }

void EventQueue::Close() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  count_ = 0;
}

int EventQueue::Open() {
  try {
    Reserve(kPortEvents);
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
  fd_ = eventfd(0, EFD_CLOEXEC);
  return fd_ < 0 ? errno : 0;
}

void EventQueue::Reserve(size_t kinds) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (reserved_ + kinds > ring_.size()) {
    Grow(std::max(reserved_ + kinds, ring_.size() + ring_.size() / 2));
  }
  reserved_ += kinds;
}

void EventQueue::Release(size_t kinds) {
  std::lock_guard<std::mutex> lock(mutex_);
  reserved_ -= kinds;
}

void EventQueue::Grow(size_t size) {
  std::vector<Entry> larger(size);
  for (size_t i = 0; i < count_; ++i) larger[i] = At(i);
  ring_.swap(larger);
  head_ = 0;
}

// Those that are the same become one: then there is room for each kind.
void EventQueue::Merge() {
  size_t kept = 0;
  for (size_t i = 0; i < count_; ++i) {
    const Entry entry = At(i);
    size_t same = 0;
    while (same < kept && !IsSame(At(same).event, entry.event)) ++same;
    if (same < kept) {
      At(same).times += entry.times;
    } else {
      At(kept++) = entry;
    }
  }
  count_ = kept;
}

void EventQueue::Post(const Event& event) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (fd_ < 0) return;
  const bool was_empty = count_ == 0;
  if (count_ == ring_.size()) {
    try {
      Grow(ring_.size() * 2);
    } catch (const std::bad_alloc&) {
      for (size_t i = 0; i < count_; ++i) {
        if (!IsSame(At(i).event, event)) continue;
        ++At(i).times;
        return;
      }
      Merge();
      if (count_ == ring_.size()) return;  // nobody has reserved room for it
    }
  }
  ++count_;
  At(count_ - 1) = {event, 1};
  if (was_empty) SetReadable(fd_);
}

void EventQueue::AddLane(int lane) {
  std::lock_guard<std::mutex> lock(mutex_);
  lanes_.Add(lane);
}

void EventQueue::RemoveLane(int lane) {
  std::lock_guard<std::mutex> lock(mutex_);
  lanes_.Remove(lane);
}

bool EventQueue::TryTake(Event* event) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (count_ == 0) return false;
  Entry& oldest = At(0);
  *event = oldest.event;
  if (--oldest.times == 0) {
    head_ = (head_ + 1) % ring_.size();
    --count_;
  }
  if (event->account != nullptr) ++event->account->taken;
  if (count_ == 0) ClearReadable(fd_);
  return true;
}

int EventQueue::Take(Engine& engine, Event* event) {
  if (TryTake(event)) return 0;
  engine.Progress(lanes_.lanes());
  while (!TryTake(event)) {
    const int flags = fcntl(fd_, F_GETFL);
    if (flags < 0) return errno;
    if ((flags & O_NONBLOCK) != 0) return EAGAIN;
    const int error = waiter_ == Waiter::kMakesProgress
                          ? engine.WaitReadable(fd_, lanes_.lanes())
                          : engine.WaitPassive(fd_);
    if (error != 0 && !(error == EINTR && SignalsRestart())) return error;
  }
  return 0;
}

uint32_t EventQueue::Withdraw(const EventAccount* account) {
  std::lock_guard<std::mutex> lock(mutex_);
  const size_t had = count_;
  size_t kept = 0;
  for (size_t i = 0; i < had; ++i) {
    if (At(i).event.account != account) At(kept++) = At(i);
  }
  count_ = kept;
  if (had != 0 && kept == 0) ClearReadable(fd_);
  return account->taken;
}

}  // namespace rxe_user
