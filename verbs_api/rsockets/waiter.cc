#include "verbs_api/rsockets/waiter.h"

#include <limits.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <new>

namespace rsockets {
namespace {

thread_local Waiter* of_this_thread = nullptr;

// A waiter is destroyed with its thread. Later destructors of the thread may
// wait and create another one: the destructors of keys run again for that.
pthread_key_t Key() {
  static const pthread_key_t key = [] {
    pthread_key_t made = PTHREAD_KEYS_MAX;  // invalid: setting it fails
    pthread_key_create(&made, [](void* waiter) {
      of_this_thread = nullptr;
      delete static_cast<Waiter*>(waiter);
    });
    return made;
  }();
  return key;
}

}  // namespace

Waiter* Waiter::OfThisThread() {
  if (of_this_thread == nullptr) {
    std::unique_ptr<Waiter> waiter(new (std::nothrow) Waiter);
    if (waiter == nullptr || pthread_setspecific(Key(), waiter.get()) != 0) {
      return nullptr;
    }
    of_this_thread = waiter.release();
  }
  Waiter& waiter = *of_this_thread;
  if (waiter.pid_ != getpid()) {
    // Not closed: the program may have closed the parent's descriptors, and the
    // number may be another file's.
    static_cast<void>(waiter.fd_.Release());
    waiter.fd_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!waiter.fd_.valid()) return nullptr;
    waiter.pid_ = getpid();
  }
  return &waiter;
}

void Waiter::Wake() {
  const uint64_t one = 1;
  // write fails only if the eventfd is readable already.
  [[maybe_unused]] const ssize_t n = write(fd_.get(), &one, sizeof(one));
}

void Waiter::Clear() {
  uint64_t count;
  [[maybe_unused]] const ssize_t n = read(fd_.get(), &count, sizeof(count));
}

}  // namespace rsockets
