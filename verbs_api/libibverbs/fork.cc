// fork(): the child inherits none of the objects. Threads that exist only in
// the parent may hold their locks, so the child does not touch them. It may
// open devices of its own.
#include "rxe_user/base/fork_guard.h"
#include "rxe_user/base/only_one.h"
#include "rxe_user/base/opened_before_fork.h"
#include "rxe_user/base/warn_once.h"
#include "verbs_api/libibverbs/abi.h"
#include "verbs_api/libibverbs/lookup.h"

namespace verbs_api {
namespace {

// No thread waits for anything while it holds one of these locks. For a moment
// there may be two guards (only_one.h): the first that is called locks.
class ObjectsGuard final : private rxe_user::ForkGuard {
 public:
  ObjectsGuard() : ForkGuard(rxe_user::ForkLevel::kVerbsObjects) {
    EnterForkGuard();
  }
  ~ObjectsGuard() { LeaveForkGuard(); }

 private:
  void BeforeFork() override {
    if (called_++ != 0) return;
    LockDevicesForFork();
    ForEachRegistry([](auto& registry) { registry.LockForFork(); });
    ForEachHandleTable([](auto& table) { table.LockForFork(); });
  }
  void AfterForkInParent() override {
    if (--called_ != 0) return;
    ForEachHandleTable([](auto& table) { table.UnlockInParent(); });
    ForEachRegistry([](auto& registry) { registry.UnlockInParent(); });
    UnlockDevicesAfterFork();
  }
  void AfterForkInChild() override {
    if (--called_ != 0) return;
    ForEachHandleTable([](auto& table) { table.AbandonInChild(); });
    ForEachRegistry([](auto& registry) { registry.AbandonInChild(); });
    UnlockDevicesAfterFork();
  }

  // The guards between the calls before and after fork, which exclude other
  // forks.
  static inline int called_ = 0;
};

}  // namespace

void WatchForks() { rxe_user::OnlyOne<ObjectsGuard>(); }

void WarnInherited() { rxe_user::WarnOnce(rxe_user::kOpenedBeforeFork); }

}  // namespace verbs_api
