#include "rxe_user/objects/event_queue.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <new>
#include <utility>

#include "rxe_user/engine/engine.h"

namespace rxe_user {
namespace {

// By syscall(), since read() and write() are cancellation points: a thread
// cancelled there would lose its event. The descriptor's count is 1 while
// events wait and 0 otherwise, so neither blocks nor fails.
void SetReadable(int fd) {
  const uint64_t one = 1;
  syscall(SYS_write, fd, &one, sizeof(one));
}
void ClearReadable(int fd) {
  uint64_t count;
  syscall(SYS_read, fd, &count, sizeof(count));
}

// Whether an interrupted read() would continue: all handlers of the program
// were installed with SA_RESTART, as signal() does.
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
  events_.clear();
  while (!empty()) TakeNoted();
}

int EventQueue::Open() {
  fd_ = eventfd(0, EFD_CLOEXEC);
  return fd_ < 0 ? errno : 0;
}

void EventQueue::Post(const Event& event) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (fd_ < 0) return;
  const bool was_empty = empty();
  try {
    events_.push_back(event);
  } catch (const std::bad_alloc&) {
    Note(event);
  }
  if (was_empty) SetReadable(fd_);
}

void EventQueue::Note(const Event& event) {
  const uint32_t bit = uint32_t{1} << event.type;
  if (event.account == nullptr) {
    port_.noted |= bit;
    port_.element = event.element;
    noted_port_ = event.port;
    return;
  }
  EventAccount& account = *event.account;
  if (account.noted == 0) account.next_noted = std::exchange(noted_, &account);
  account.noted |= bit;
  account.element = event.element;
}

Event EventQueue::TakeNoted() {
  EventAccount& account = noted_ != nullptr ? *noted_ : port_;
  Event event;
  event.type = std::countr_zero(account.noted);
  event.element = account.element;
  account.noted &= account.noted - 1;
  if (noted_ == nullptr) {
    event.port = noted_port_;
  } else {
    event.account = &account;
    if (account.noted == 0) noted_ = account.next_noted;
  }
  return event;
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
  if (empty()) return false;
  if (events_.empty()) {
    *event = TakeNoted();
  } else {
    *event = events_.front();
    events_.pop_front();
  }
  if (event->account != nullptr) ++event->account->taken;
  if (empty()) ClearReadable(fd_);
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

uint32_t EventQueue::Withdraw(EventAccount* account) {
  std::lock_guard<std::mutex> lock(mutex_);
  const bool had = !empty();
  std::erase_if(events_,
                [account](const Event& e) { return e.account == account; });
  if (std::exchange(account->noted, 0) != 0) {
    EventAccount** link = &noted_;
    while (*link != account) link = &(*link)->next_noted;
    *link = account->next_noted;
  }
  if (had && empty()) ClearReadable(fd_);
  return account->taken;
}

}  // namespace rxe_user
