// Maps pointers of the application to our objects. Every pointer is looked up,
// so an invalid or stale pointer is an error, not a crash.
#ifndef VERBS_API_LIBRDMACM_REGISTRY_H_
#define VERBS_API_LIBRDMACM_REGISTRY_H_

#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "rxe_user/base/fork_guard.h"

namespace librdmacm {

// `Part`: the public struct in each object, for instance rdma_cm_id.
//
// A child of fork() does not find its parent's objects: their locks may be held
// for ever, and their descriptors are shared with the parent. They are kept
// untouched. Thread: any.
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
  // Null if it is not there. If several threads remove it, one gets it.
  std::shared_ptr<Object> Remove(const Part* part) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = objects_.find(part);
    if (found == objects_.end()) return nullptr;
    std::shared_ptr<Object> object = std::move(found->second);
    objects_.erase(found);
    return object;
  }
  // Whether the pointer is an object of the parent process.
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

// Prints one line on stderr: a child of fork() uses an object of its parent.
void WarnInherited();

}  // namespace librdmacm

#endif  // VERBS_API_LIBRDMACM_REGISTRY_H_
