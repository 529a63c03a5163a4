// Singletons that are safe with fork().
#ifndef RXE_USER_BASE_ONLY_ONE_H_
#define RXE_USER_BASE_ONLY_ONE_H_

#include <atomic>
#include <memory>

namespace rxe_user {

// The process's T, created by the first caller and never destroyed: other
// threads may run while the program exits. Thread: any.
//
// A static object in a function would not do: if another thread was creating it
// during fork(), the child would wait forever. Here no thread waits: two
// concurrent callers both create an object, and one of the two is destroyed.
template <typename T>
T& OnlyOne() {
  static constinit std::atomic<T*> only = nullptr;
  T* found = only.load(std::memory_order_acquire);
  if (found != nullptr) return *found;
  auto made = std::make_unique<T>();
  if (only.compare_exchange_strong(found, made.get(), std::memory_order_acq_rel,
                                   std::memory_order_acquire)) {
    return *made.release();
  }
  return *found;
}

}  // namespace rxe_user

#endif  // RXE_USER_BASE_ONLY_ONE_H_
