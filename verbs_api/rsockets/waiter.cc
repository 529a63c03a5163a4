#include "verbs_api/rsockets/waiter.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <new>
#include <utility>

namespace rsockets {
namespace {

thread_local Waiter* of_this_thread = nullptr;

// Ends it with the thread. The main thread's waits once more after that, for
// the goodbyes of a process that ends: with another one, which is left.
struct EndsWithThread {
  ~EndsWithThread() { delete std::exchange(of_this_thread, nullptr); }
};

}  // namespace

Waiter* Waiter::OfThisThread() {
  static thread_local EndsWithThread ends;
  if (of_this_thread == nullptr) {
    of_this_thread = new (std::nothrow) Waiter;
    if (of_this_thread == nullptr) return nullptr;
  }
  Waiter& waiter = *of_this_thread;
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
