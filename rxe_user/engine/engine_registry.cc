// The engines of this process, and how they handle fork() and exit().
#include "rxe_user/engine/engine_registry.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <vector>

#include "rxe_user/base/fork_guard.h"
#include "rxe_user/base/last_thread.h"
#include "rxe_user/base/only_one.h"
#include "rxe_user/engine/adaptive_lock.h"

namespace rxe_user {
namespace {

// Locks are held for microseconds. A thread that exit() has interrupted never
// releases its lock.
constexpr transport::Time kExitTimeout = 10 * transport::kMillisecond;

void TransmitAtExit();

// Null before the first engine.
std::atomic<class Registry*> existing = nullptr;

class Registry final : private ForkGuard {
 public:
  // Never destroyed: the program may have left devices open when it exits.
  static Registry& Get() { return OnlyOne<Registry>(); }
  // Call before the first engine is made.
  void WatchEnd() {
    const AdaptiveLock::Guard guard(lock);
    if (existing == this) return;
    EndWithLastThread();
    // Handlers that are registered this late run before the destructors of
    // libraries: librdmacm's destructor ends connections.
    (void)std::atexit(&TransmitAtExit);
    (void)std::at_quick_exit(&TransmitAtExit);
    existing = this;
  }

  Registry() : ForkGuard(ForkLevel::kEngines) { EnterForkGuard(); }
  ~Registry() { LeaveForkGuard(); }

  AdaptiveLock lock;
  // All engines, for fork(). Each removes itself when it ends.
  std::vector<EngineImpl*> engines;
  // By interface index and name.
  std::map<std::pair<uint32_t, std::string>, std::weak_ptr<EngineImpl>> by_name;

 private:
  void BeforeFork() override {
    lock.Lock();
    for (EngineImpl* engine : engines) engine->LockForFork();
  }
  void AfterForkInParent() override {
    for (EngineImpl* engine : engines) engine->UnlockInParent();
    lock.Unlock();
  }
  // The child may open devices again; it cannot use the parent's engines.
  void AfterForkInChild() override {
    ForgetParentsMainThread();
    for (EngineImpl* engine : engines) engine->AbandonInChild();
    engines.clear();
    by_name.clear();
    lock.Unlock();
  }
};

// An ACK of the last message may still wait to be piggybacked on a request that
// the program will not post. Without it, the peer's request would fail although
// the program has received it.
void TransmitAtExit() {
  Registry& registry = Registry::Get();
  if (!registry.lock.TryLockFor(kExitTimeout)) return;
  for (EngineImpl* engine : registry.engines) engine->TransmitAtExit();
  registry.lock.Unlock();
}

// Runs after the handlers of atexit() and the destructors of libraries that use
// devices.
__attribute__((destructor)) void CountAtExit() {
  Registry* const registry = existing;
  if (registry == nullptr || !registry->lock.TryLockFor(kExitTimeout)) return;
  for (EngineImpl* engine : registry->engines) engine->CountAtExit();
  registry->lock.Unlock();
}

// Called by the last owner. Does not hold the registry's lock during the
// delete, since BeforeFork must be able to take it then.
void Delete(EngineImpl* engine) {
  Registry& registry = Registry::Get();
  {
    const AdaptiveLock::Guard guard(registry.lock);
    std::erase(registry.engines, engine);
  }
  delete engine;
}

}  // namespace

std::shared_ptr<EngineImpl> MakeEngine(std::shared_ptr<const Device> device,
                                       EngineImpl::Parts parts) {
  Registry& registry = Registry::Get();
  registry.WatchEnd();
  std::shared_ptr<EngineImpl> engine(
      new EngineImpl(std::move(device), std::move(parts)), Delete);
  const AdaptiveLock::Guard guard(registry.lock);
  registry.engines.push_back(engine.get());
  return engine;
}

std::shared_ptr<EngineImpl> FindOrMakeEngine(
    std::shared_ptr<const Device> device, EngineImpl::Parts parts) {
  Registry& registry = Registry::Get();
  const std::pair<uint32_t, std::string> key(device->ifindex, device->netdev);
  // Created before it is known to be needed: that is cheap, and the registry's
  // lock is held briefly.
  std::shared_ptr<EngineImpl> fresh = MakeEngine(device, std::move(parts));
  const AdaptiveLock::Guard guard(registry.lock);
  std::erase_if(registry.by_name, [&](const auto& known) {
    return known.first != key && known.second.expired();
  });
  std::weak_ptr<EngineImpl>& entry = registry.by_name[key];
  std::shared_ptr<EngineImpl> engine = entry.lock();
  if (engine == nullptr) {
    entry = fresh;
    engine = fresh;
  }
  return engine;
}

}  // namespace rxe_user
