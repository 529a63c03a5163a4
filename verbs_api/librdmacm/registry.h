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

// From what the application has to the object. Thread: any.
template <typename Part, typename Object>
class Registry {
 public:
  void Add(const Part* part, std::shared_ptr<Object> object) {
    std::lock_guard<rxe_user::ForkSafeMutex> lock(mutex_);
    objects_[part] = std::move(object);
  }
  std::shared_ptr<Object> Find(const Part* part) {
    std::lock_guard<rxe_user::ForkSafeMutex> lock(mutex_);
    const auto found = objects_.find(part);
    return found != objects_.end() ? found->second : nullptr;
  }
  std::vector<std::shared_ptr<Object>> All() {
    std::lock_guard<rxe_user::ForkSafeMutex> lock(mutex_);
    std::vector<std::shared_ptr<Object>> all;
    for (const auto& [part, object] : objects_) all.push_back(object);
    return all;
  }
  // Null if it is not there: one of those who remove it gets it.
  std::shared_ptr<Object> Remove(const Part* part) {
    std::lock_guard<rxe_user::ForkSafeMutex> lock(mutex_);
    const auto found = objects_.find(part);
    if (found == objects_.end()) return nullptr;
    std::shared_ptr<Object> object = std::move(found->second);
    objects_.erase(found);
    return object;
  }

 private:
  rxe_user::ForkSafeMutex mutex_;
  std::map<const Part*, std::shared_ptr<Object>> objects_;  // guarded by mutex_
};

}  // namespace librdmacm

#endif  // VERBS_API_LIBRDMACM_REGISTRY_H_
