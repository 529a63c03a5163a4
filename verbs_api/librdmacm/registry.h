// Which pointers of applications are objects of ours: what they pass is looked
// up, so that garbage, and what was destroyed, is an error and no crash.
#ifndef VERBS_API_LIBRDMACM_REGISTRY_H_
#define VERBS_API_LIBRDMACM_REGISTRY_H_

#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "rxe_user/base/fork_guard.h"

namespace librdmacm {

// From what the application has to the object. A child of fork() has none of
// its parent's: their locks may be held there for ever, and their descriptors
// are the parent's as well. They are not found, and kept as they are. Thread:
// any.
template <typename Part, typename Object>
class Registry final : private rxe_user::ForkGuard {
 public:
  Registry() : ForkGuard(rxe_user::ForkLevel::kLeafLocks) { EnterForkGuard(); }
  ~Registry() { LeaveForkGuard(); }

  void Add(const Part* part, std::shared_ptr<Object> object) {
    std::lock_guard<std::mutex> lock(mutex_);
    objects_[part] = std::move(object);
  }
  std::shared_ptr<Object> Find(const Part* part) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = objects_.find(part);
    return found != objects_.end() ? found->second : nullptr;
  }
  std::vector<std::shared_ptr<Object>> All() {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<std::shared_ptr<Object>> all;
    for (const auto& [part, object] : objects_) all.push_back(object);
    return all;
  }
  // Null if it is not there: one of those who remove it gets it.
  std::shared_ptr<Object> Remove(const Part* part) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = objects_.find(part);
    if (found == objects_.end()) return nullptr;
    std::shared_ptr<Object> object = std::move(found->second);
    objects_.erase(found);
    return object;
  }
  // Whether the parent of this process has, or had, it.
  bool IsInherited(const Part* part) {
    std::lock_guard<std::mutex> lock(mutex_);
    return inherited_.contains(part);
  }

 private:
  void BeforeFork() override { mutex_.lock(); }
  void AfterForkInParent() override { mutex_.unlock(); }
  void AfterForkInChild() override {
    inherited_.merge(objects_);
    mutex_.unlock();
  }

  std::mutex mutex_;
  // Guarded by mutex_.
  std::map<const Part*, std::shared_ptr<Object>> objects_;
  std::map<const Part*, std::shared_ptr<Object>> inherited_;
};

// A child of fork() uses what its parent has: a line on stderr.
void WarnInherited();

}  // namespace librdmacm

#endif  // VERBS_API_LIBRDMACM_REGISTRY_H_
