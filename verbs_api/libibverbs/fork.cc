// fork(): the child inherits none of the objects. Threads that exist only in
// the parent may hold their locks, so the child does not touch them. It may
// open devices of its own.
#include "rxe_user/base/fork_guard.h"
#include "rxe_user/base/opened_before_fork.h"
#include "rxe_user/base/warn_once.h"
#include "verbs_api/libibverbs/abi.h"
#include "verbs_api/libibverbs/lookup.h"

namespace verbs_api {
namespace {

// No thread waits for anything while it holds one of these locks.
class ObjectsGuard final : private rxe_user::ForkGuard {
 public:
  ObjectsGuard() : ForkGuard(rxe_user::ForkLevel::kVerbsObjects) {
    EnterForkGuard();
  }

 private:
  void BeforeFork() override {
    LockDevicesForFork();
    ForEachRegistry([](auto& registry) { registry.LockForFork(); });
    ForEachHandleTable([](auto& table) { table.LockForFork(); });
  }
  void AfterForkInParent() override {
    ForEachHandleTable([](auto& table) { table.UnlockInParent(); });
    ForEachRegistry([](auto& registry) { registry.UnlockInParent(); });
    UnlockDevicesAfterFork();
  }
  void AfterForkInChild() override {
    ForEachHandleTable([](auto& table) { table.AbandonInChild(); });
    ForEachRegistry([](auto& registry) { registry.AbandonInChild(); });
    UnlockDevicesAfterFork();
  }
};

}  // namespace

// Never destroyed: exit handlers may call fork().
void WatchForks() {
  static const auto* const guard = new ObjectsGuard;
  (void)guard;
}

void WarnInherited() { rxe_user::WarnOnce(rxe_user::kOpenedBeforeFork); }

}  // namespace verbs_api
