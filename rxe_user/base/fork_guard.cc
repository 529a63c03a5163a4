#include "rxe_user/base/fork_guard.h"

#include <pthread.h>

#include <array>
#include <atomic>
#include <set>

#include "rxe_user/base/only_one.h"

namespace rxe_user {

namespace {
void (*register_first)() = nullptr;

// How many times the handlers of this thread's fork were called before it.
thread_local int times_called = 0;
}  // namespace

class ForkGuard::Registry {
 public:
  static Registry& Get() {
    Registry& registry = OnlyOne<Registry>();
    if (!registry.registered_.load(std::memory_order_acquire)) {
      registry.Register();
    }
    return registry;
  }
  void Add(ForkGuard* guard) {
    Level& level = At(guard);
    const std::lock_guard lock(level.mutex);
    level.guards.insert(guard);
  }
  void Remove(ForkGuard* guard) {
    Level& level = At(guard);
    const std::lock_guard lock(level.mutex);
    level.guards.erase(guard);
  }

 private:
  // Each level has its own lock, so that guards can enter and leave while locks
  // of earlier levels are held.
  struct Level {
    std::mutex mutex;
    std::set<ForkGuard*> guards;
  };

  // Threads that do this at the same time register the handlers several times,
  // of which a fork calls all: the first call before it and the last one after
  // it count.
  void Register() {
    if (register_first != nullptr) register_first();
    pthread_atfork(
        [] {
          if (times_called++ == 0) OnlyOne<Registry>().Before();
        },
        [] {
          if (--times_called == 0) OnlyOne<Registry>().InParent();
        },
        [] {
          if (--times_called == 0) OnlyOne<Registry>().InChild();
        });
    registered_.store(true, std::memory_order_release);
  }
  Level& At(const ForkGuard* guard) {
    return levels_[static_cast<size_t>(guard->level_)];
  }
  void Before() {
    for (Level& level : levels_) {
      level.mutex.lock();
      for (ForkGuard* guard : level.guards) guard->BeforeFork();
    }
  }
  void InParent() {
    for (Level& level : levels_) {
      for (ForkGuard* guard : level.guards) guard->AfterForkInParent();
      level.mutex.unlock();
    }
  }
  void InChild() {
    for (Level& level : levels_) {
      for (ForkGuard* guard : level.guards) guard->AfterForkInChild();
      level.mutex.unlock();
    }
    // Guards of these levels belong to the parent. The child may still destroy
    // such an object: Remove then finds nothing.
    for (const ForkLevel gone :
         {ForkLevel::kControlThreads, ForkLevel::kDescriptors}) {
      levels_[static_cast<size_t>(gone)].guards.clear();
    }
  }

  std::array<Level, static_cast<size_t>(ForkLevel::kCount)> levels_;
  std::atomic<bool> registered_ = false;
};

void ForkGuard::RegisterAfter(void (*other)()) { register_first = other; }
void ForkGuard::EnterForkGuard() { Registry::Get().Add(this); }
void ForkGuard::LeaveForkGuard() { Registry::Get().Remove(this); }

}  // namespace rxe_user
