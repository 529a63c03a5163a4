// Objects of which a process has one.
#ifndef RXE_USER_BASE_ONLY_ONE_H_
#define RXE_USER_BASE_ONLY_ONE_H_

#include <atomic>
#include <memory>

namespace rxe_user {

// The process's T, made by whoever comes first, and never destroyed: other
// threads may run while the program exits. Thread: any.
//
// Who comes to a static object of a function while another thread makes it
// waits, and a child of fork() would wait for ever for a thread that it does
// not have. Here nobody waits: two who come at once both make one, and one of
// the two goes.
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
