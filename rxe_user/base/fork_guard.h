// What fork() must find in order: the one place where the library hears of it.
#ifndef RXE_USER_BASE_FORK_GUARD_H_
#define RXE_USER_BASE_FORK_GUARD_H_

#include <mutex>
#include <new>
#include <shared_mutex>

namespace rxe_user {

// The order in which guards are called, before fork and after it. It is the
// order in which their locks may be held together: who holds a lock of one
// level may take those of later levels, and may enter and leave guards of later
// levels.
enum class ForkLevel {
  kVerbsObjects,    // what the application holds: tables of handles
  kEngines,         // the engines and their lanes
  kControlThreads,  // which stop between two handlers
  kDescriptors,     // what the kernel would keep open for the child
  kLeafLocks,       // under which nothing is locked
  kCount,
};

// An object that fork() has to know of. A child of fork() has the thread that
// forked and none else: a lock that another thread held would stay locked, and
// a descriptor would keep a port or a connection from closing.
class ForkGuard {
 public:
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

 protected:
  explicit ForkGuard(ForkLevel level) : level_(level) {}
  ~ForkGuard() = default;

  // First and last thing in the life of the complete object. Leaving waits for
  // a fork that is under way.
  void EnterForkGuard();
  void LeaveForkGuard();

  // Locks what the child needs unlocked. Not to be held up by anything that
  // takes its time.
  virtual void BeforeFork() = 0;
  virtual void AfterForkInParent() = 0;
  // In the child, which has one thread. Guards of kDescriptors and
  // kControlThreads have left when this returns; the others stay.
  virtual void AfterForkInChild() = 0;

 private:
  class Registry;
  const ForkLevel level_;
};

// A mutex that is free in a child of fork(). For locks of static duration under
// which nothing else is locked, and which are held for a moment only.
class ForkSafeMutex final : private ForkGuard {
 public:
  ForkSafeMutex() : ForkGuard(ForkLevel::kLeafLocks) { EnterForkGuard(); }
  ~ForkSafeMutex() { LeaveForkGuard(); }
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  void BeforeFork() override { mutex_.lock(); }
  void AfterForkInParent() override { mutex_.unlock(); }
  void AfterForkInChild() override { mutex_.unlock(); }

  std::mutex mutex_;
};

// A mutex that is made anew in a child of fork(), which is not held up by who
// holds it: for locks of static duration that are held while something is
// waited for. What it guards may be half done in the child, which has to make
// that anew as well.
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

// A mutex for many readers, else as ForkSafeMutex.
class ForkSafeSharedMutex final : private ForkGuard {
 public:
  ForkSafeSharedMutex() : ForkGuard(ForkLevel::kLeafLocks) { EnterForkGuard(); }
  ~ForkSafeSharedMutex() { LeaveForkGuard(); }
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }
  void lock_shared() { mutex_.lock_shared(); }
  void unlock_shared() { mutex_.unlock_shared(); }

 private:
  void BeforeFork() override { mutex_.lock(); }
  void AfterForkInParent() override { mutex_.unlock(); }
  // Not unlock(): a thread of the child is another one to glibc.
  void AfterForkInChild() override { new (&mutex_) std::shared_mutex; }

  std::shared_mutex mutex_;
};

}  // namespace rxe_user

#endif  // RXE_USER_BASE_FORK_GUARD_H_
