#include "rxe_user/base/fork_guard.h"

#include <pthread.h>

#include <array>
#include <set>

namespace rxe_user {

namespace {
void (*register_first)() = nullptr;
}  // namespace

class ForkGuard::Registry {
 public:
  static Registry& Get() {
    // Never destroyed: exit handlers may call fork().
    static Registry* const registry = new Registry;
    return *registry;
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

  Registry() {
    if (register_first != nullptr) register_first();
    pthread_atfork([] { Get().Before(); }, [] { Get().InParent(); },
                   [] { Get().InChild(); });
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
};

void ForkGuard::RegisterAfter(void (*other)()) { register_first = other; }
void ForkGuard::EnterForkGuard() { Registry::Get().Add(this); }
void ForkGuard::LeaveForkGuard() { Registry::Get().Remove(this); }

}  // namespace rxe_user
