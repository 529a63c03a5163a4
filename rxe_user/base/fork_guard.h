// The library's only fork() handlers.
#ifndef RXE_USER_BASE_FORK_GUARD_H_
#define RXE_USER_BASE_FORK_GUARD_H_

#include <mutex>
#include <new>
#include <shared_mutex>
#include <type_traits>

namespace rxe_user {

// The order in which guards are called, before and after fork. It is also the
// lock order: a thread that holds a lock of one level may take those of later
// levels, and may enter and leave guards of later levels.
enum class ForkLevel {
  kVerbsObjects,    // tables of the application's handles
  kEngines,         // engines and their lanes
  kControlThreads,  // stopped between two sources
  kDescriptors,     // descriptors to close in the child
  kLeafLocks,       // no lock is taken under these
  kCount,
};

// An object that must be prepared for fork(). The child has only the thread
// that forked: a lock that another thread held would stay locked, and an
// inherited descriptor would keep a port or connection open.
class ForkGuard {
 public:
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

  // Before the first guard of this library enters, `other` is called to
  // register the handlers of another library whose locks are taken while locks
  // of this one are held: handlers run in reverse order. RegisterAfter is
  // called once, when this library is loaded. Registering the handlers at that
  // time would be too early: before the preload library of rsockets, whose
  // handlers must be registered first.
  static void RegisterAfter(void (*other)());

 protected:
  explicit ForkGuard(ForkLevel level) : level_(level) {}
  ~ForkGuard() = default;

  // The first and the last call in the lifetime of the complete object. Leaving
  // waits for a fork in progress.
  void EnterForkGuard();
  void LeaveForkGuard();

  // Locks what the child needs unlocked. Must not wait for anything slow.
  virtual void BeforeFork() = 0;
  virtual void AfterForkInParent() = 0;
  // Called in the child, which has one thread. Guards of kDescriptors and
  // kControlThreads are removed after this call; the others stay.
  virtual void AfterForkInChild() = 0;

 private:
  class Registry;
  const ForkLevel level_;
};

// A mutex that is free in a child of fork(). For static locks that are held
// briefly and under which no other lock is taken.
template <typename Mutex>
class ForkSafe final : private ForkGuard {
 public:
  ForkSafe() : ForkGuard(ForkLevel::kLeafLocks) { EnterForkGuard(); }
  ~ForkSafe() { LeaveForkGuard(); }
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }
  void lock_shared() { mutex_.lock_shared(); }
  void unlock_shared() { mutex_.unlock_shared(); }

 private:
  void BeforeFork() override { mutex_.lock(); }
  void AfterForkInParent() override { mutex_.unlock(); }
  void AfterForkInChild() override {
    if constexpr (std::is_same_v<Mutex, std::shared_mutex>) {
      // Not unlock(): to glibc, the child's thread is not the owner.
      new (&mutex_) Mutex;
    } else {
      mutex_.unlock();
    }
  }

  Mutex mutex_;
};
using ForkSafeMutex = ForkSafe<std::mutex>;
using ForkSafeSharedMutex = ForkSafe<std::shared_mutex>;

// A mutex that is re-created in a child of fork(); fork() does not wait for its
// holder. For static locks that are held while waiting. The data that it guards
// may be inconsistent in the child, which must re-create them as well.
class ForkRenewedMutex final : private ForkGuard {
 public:
  ForkRenewedMutex() : ForkGuard(ForkLevel::kLeafLocks) { EnterForkGuard(); }
  ~ForkRenewedMutex() { LeaveForkGuard(); }
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  void BeforeFork() override {}
  void AfterForkInParent() override {}
  void AfterForkInChild() override { new (&mutex_) std::mutex; }

  std::mutex mutex_;
};

}  // namespace rxe_user

#endif  // RXE_USER_BASE_FORK_GUARD_H_
