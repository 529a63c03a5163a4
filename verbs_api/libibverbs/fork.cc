// fork(): the child inherits none of the objects. Their locks may be held there
// by threads that exist in the parent only, so nothing of them is touched. The
// child may open devices of its own.
#include <pthread.h>

#include "verbs_api/libibverbs/abi.h"
#include "verbs_api/libibverbs/lookup.h"

namespace verbs_api {
namespace {

// None of these locks is held while waiting for anything.
void Before() {
  LockDevicesForFork();
  LockRegistriesForFork();
  ForEachHandleTable([](auto& table) { table.LockForFork(); });
}

void InParent() {
  ForEachHandleTable([](auto& table) { table.UnlockInParent(); });
  UnlockRegistriesInParent();
  UnlockDevicesAfterFork();
}

void InChild() {
  ForEachHandleTable([](auto& table) { table.AbandonInChild(); });
  AbandonRegistriesInChild();
  UnlockDevicesAfterFork();
}

}  // namespace

void WatchForks() {
  static const int registered = pthread_atfork(Before, InParent, InChild);
  (void)registered;
}

void WarnInherited() {
  rxe_user::TellOnce(
      "the device was opened before fork() and stayed with the parent process; "
      "open it after forking");
}

}  // namespace verbs_api
