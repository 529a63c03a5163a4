#include "rxe_user/objects/event_queue.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "rxe_user/engine.h"

namespace rxe_user {

EventQueue::~EventQueue() { Close(); }

void EventQueue::Close() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  events_.clear();
}

int EventQueue::Open() {
  fd_ = eventfd(0, EFD_CLOEXEC);
  return fd_ < 0 ? errno : 0;
}

void EventQueue::Post(const Event& event) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (fd_ < 0) return;
  const bool was_empty = events_.empty();
  events_.push_back(event);
  if (was_empty) {
    const uint64_t one = 1;
    // The count is 0, so this neither blocks nor fails.
    [[maybe_unused]] ssize_t done = write(fd_, &one, sizeof(one));
  }
}

bool EventQueue::TryTake(Event* event) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (events_.empty()) return false;
  *event = events_.front();
  events_.pop_front();
  if (event->account != nullptr) ++event->account->taken;
  if (events_.empty()) {
    uint64_t count;
    [[maybe_unused]] ssize_t done = read(fd_, &count, sizeof(count));
  }
  return true;
}

int EventQueue::Take(Engine& engine, Event* event) {
  if (TryTake(event)) return 0;
  engine.Progress();
  while (!TryTake(event)) {
    const int flags = fcntl(fd_, F_GETFL);
    if (flags < 0) return errno;
    if ((flags & O_NONBLOCK) != 0) return EAGAIN;
    if (const int error = engine.WaitReadable(fd_); error != 0) return error;
  }
  return 0;
}

uint32_t EventQueue::Withdraw(const EventAccount* account) {
  std::lock_guard<std::mutex> lock(mutex_);
  const bool had = !events_.empty();
  std::erase_if(events_,
                [account](const Event& e) { return e.account == account; });
  if (had && events_.empty()) {
    uint64_t count;
    [[maybe_unused]] ssize_t done = read(fd_, &count, sizeof(count));
  }
  return account->taken;
}

}  // namespace rxe_user
