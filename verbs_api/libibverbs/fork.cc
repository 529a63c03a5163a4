// fork(): the child inherits none of the objects. Their locks may be held there
// by threads that exist in the parent only, so nothing of them is touched. The
// child may open devices of its own.
#include "rxe_user/base/fork_guard.h"
#include "rxe_user/base/opened_before_fork.h"
#include "rxe_user/base/warn_once.h"
#include "verbs_api/libibverbs/abi.h"
#include "verbs_api/libibverbs/lookup.h"

namespace verbs_api {
namespace {

// None of these locks is held while waiting for anything.
class ObjectsGuard final : private rxe_user::ForkGuard {
 public:
  ObjectsGuard() : ForkGuard(rxe_user::ForkLevel::kVerbsObjects) {
    EnterForkGuard();
  }

 private:
  void BeforeFork() override {
    LockDevicesForFork();
    LockRegistriesForFork();
    ForEachHandleTable([](auto& table) { table.LockForFork(); });
  }
  void AfterForkInParent() override {
    ForEachHandleTable([](auto& table) { table.UnlockInParent(); });
    UnlockRegistriesInParent();
    UnlockDevicesAfterFork();
  }
  void AfterForkInChild() override {
    ForEachHandleTable([](auto& table) { table.AbandonInChild(); });
    AbandonRegistriesInChild();
    UnlockDevicesAfterFork();
  }
};

}  // namespace

// Never destroyed: fork() may be called by exit handlers.
void WatchForks() {
  static const auto* const guard = new ObjectsGuard;
  (void)guard;
}

void WarnInherited() { rxe_user::WarnOnce(rxe_user::kOpenedBeforeFork); }

}  // namespace verbs_api
