#include "rxe_user/broker/fork_guard.h"

#include <pthread.h>

#include <set>

namespace rxe_user::broker {

class ForkGuard::Registry {
 public:
  static Registry& Get() {
    // Never destroyed: fork() may be called by exit handlers.
    static Registry* const registry = new Registry;
    return *registry;
  }
  void Add(ForkGuard* guard) {
    const std::lock_guard lock(mu_);
    guards_.insert(guard);
  }
  void Remove(ForkGuard* guard) {
    const std::lock_guard lock(mu_);
    guards_.erase(guard);
  }

 private:
  Registry() {
    pthread_atfork([] { Get().Prepare(); }, [] { Get().Parent(); },
                   [] { Get().Child(); });
  }
  void Prepare() {
    mu_.lock();
    for (ForkGuard* g : guards_) g->descriptors_.lock();
  }
  void Parent() {
    for (ForkGuard* g : guards_) g->descriptors_.unlock();
    mu_.unlock();
  }
  void Child() {
    for (ForkGuard* g : guards_) {
      g->DieInChild();
      g->descriptors_.unlock();
    }
    guards_.clear();
    mu_.unlock();
  }

  std::mutex mu_;
  std::set<ForkGuard*> guards_;
};

void ForkGuard::EnterForkGuard() { Registry::Get().Add(this); }
void ForkGuard::LeaveForkGuard() { Registry::Get().Remove(this); }

}  // namespace rxe_user::broker
