// What a forked child must not keep.
#ifndef RXE_USER_BROKER_FORK_GUARD_H_
#define RXE_USER_BROKER_FORK_GUARD_H_

#include <mutex>

namespace rxe_user::broker {

// An object whose descriptors are closed in a child of fork(): the broker
// learns from the end of a connection that its client has gone, and the kernel
// from the last descriptor that a port is free.
class ForkGuard {
 public:
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

 protected:
  ForkGuard() = default;
  ~ForkGuard() = default;

  // First and last thing in the life of the complete object.
  void EnterForkGuard();
  void LeaveForkGuard();

  // In the child, which has one thread, holding `descriptors_`: closes all.
  virtual void DieInChild() = 0;

  // Held by whoever changes the descriptors, and during fork(). Never held
  // while waiting for anything.
  std::mutex descriptors_;

 private:
  class Registry;
};

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_FORK_GUARD_H_
