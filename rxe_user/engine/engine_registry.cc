// The engines of this process, and what becomes of them in fork and exit.
#include "rxe_user/engine/engine_registry.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <vector>

#include "rxe_user/base/fork_guard.h"
#include "rxe_user/base/last_thread.h"
#include "rxe_user/engine/adaptive_lock.h"

namespace rxe_user {
namespace {

// Holders need microseconds; one that exit() has interrupted never goes on.
constexpr transport::Time kExitTimeout = 10 * transport::kMillisecond;

void TransmitAtExit();

class Registry final : private ForkGuard {
 public:
  static Registry& Get() {
    // Never destroyed: other threads may still use engines while the program
    // exits, and the program may have left devices open.
    static Registry* const registry = new Registry;
    return *registry;
  }

  AdaptiveLock lock;
  // All engines, for fork; they remove themselves when they end.
  std::vector<EngineImpl*> engines;
  // By interface index and name.
  std::map<std::pair<uint32_t, std::string>, std::weak_ptr<EngineImpl>> by_name;

 private:
  Registry() : ForkGuard(ForkLevel::kEngines) {
    EnterForkGuard();
    EndWithLastThread();
    // Handlers that come so late run before the destructors of libraries:
    // librdmacm's ends connections.
    (void)std::atexit(&TransmitAtExit);
    (void)std::at_quick_exit(&TransmitAtExit);
  }
  void BeforeFork() override {
    lock.Lock();
    for (EngineImpl* engine : engines) engine->LockForFork();
  }
  void AfterForkInParent() override {
    for (EngineImpl* engine : engines) engine->UnlockInParent();
    lock.Unlock();
  }
  // The child may open devices afresh; those of the parent are dead to it.
  void AfterForkInChild() override {
    ForgetParentsMainThread();
    for (EngineImpl* engine : engines) engine->AbandonInChild();
    engines.clear();
    by_name.clear();
    lock.Unlock();
  }
};

// The acknowledgement of what the program has received last may wait for what
// it says next, which is nothing: its peer would wait for it in vain, though
// the program has what it sent.
void TransmitAtExit() {
  Registry& registry = Registry::Get();
  if (!registry.lock.TryLockFor(kExitTimeout)) return;
  for (EngineImpl* engine : registry.engines) engine->TransmitAtExit();
  registry.lock.Unlock();
}

// Called by the last owner, without the registry's lock, which BeforeFork must
// be able to get while an engine ends.
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
  // Made before it is known to be needed: it is cheap, and the registry's lock
  // stays short.
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
