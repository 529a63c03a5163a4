#include "verbs_api/rsockets/waiter.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

namespace rsockets {

Waiter* Waiter::OfThisThread() {
  static thread_local Waiter waiter;
  if (waiter.pid_ != getpid()) {
    waiter.fd_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!waiter.fd_.valid()) return nullptr;
    waiter.pid_ = getpid();
  }
  return &waiter;
}

void Waiter::Wake() {
  const uint64_t one = 1;
  // It can only fail when it is readable anyway.
  [[maybe_unused]] const ssize_t n = write(fd_.get(), &one, sizeof(one));
}

void Waiter::Clear() {
  uint64_t count;
  [[maybe_unused]] const ssize_t n = read(fd_.get(), &count, sizeof(count));
}

}  // namespace rsockets
