// What becomes of the application's objects in fork(): the child has none.
// Their locks may be held there by threads that stayed with the parent, so
// nothing of them is touched; the child may open devices of its own.
#include <pthread.h>

#include "verbs_api/libibverbs/abi.h"

namespace verbs_api {
namespace {

template <typename F>
void ForEachTable(F&& f) {
  f(Handles<Qp>());
  f(Handles<Cq>());
  f(Handles<Srq>());
  f(Handles<Pd>());
  f(Handles<Mr>());
  f(Handles<Ah>());
}

// None of these locks is held while waiting for anything.
void Before() {
  LockDevicesForFork();
  LockRegistriesForFork();
  ForEachTable([](auto& table) { table.LockForFork(); });
}

void InParent() {
  ForEachTable([](auto& table) { table.UnlockInParent(); });
  UnlockRegistriesInParent();
  UnlockDevicesAfterFork();
}

void InChild() {
  ForEachTable([](auto& table) { table.LoseInChild(); });
  LoseRegistriesInChild();
  UnlockDevicesAfterFork();
}

}  // namespace

void WatchForks() {
  static const int registered = pthread_atfork(Before, InParent, InChild);
  (void)registered;
}

void TellLost() {
  rxe_user::TellOnce(
      "the device was opened before fork() and stayed with the parent process; "
      "open it after forking");
}

}  // namespace verbs_api
