// A queue that can allocate in advance.
#ifndef TRANSPORT_CM_RESERVED_QUEUE_H_
#define TRANSPORT_CM_RESERVED_QUEUE_H_

#include <cstddef>
#include <list>
#include <new>
#include <utility>

namespace transport::cm {

template <typename T>
class ReservedQueue {
 public:
  // Keeps memory for `kept` entries while it is empty.
  explicit ReservedQueue(size_t kept) : kept_(kept), spare_(kept) {}

  // Allocates for `count` further entries. False without memory.
  bool Reserve(size_t count) {
    try {
      while (spare_.size() < count) spare_.emplace_back();
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }
  // Appends an entry, which must have been reserved.
  T& Push() {
    spare_.front() = T{};
    queue_.splice(queue_.end(), spare_, spare_.begin());
    return queue_.back();
  }
  bool Pop(T* out) {
    if (queue_.empty()) return false;
    *out = queue_.front();
    Free(queue_.begin());
    return true;
  }
  template <typename Matches>
  void RemoveIf(Matches matches) {
    for (auto at = queue_.begin(); at != queue_.end();) {
      const auto it = at++;
      if (matches(*it)) Free(it);
    }
  }
  bool empty() const { return queue_.empty(); }

 private:
  void Free(typename std::list<T>::iterator it) {
    spare_.splice(spare_.end(), queue_, it);
    if (spare_.size() > kept_) spare_.pop_back();
  }

  const size_t kept_;
  std::list<T> queue_;
  std::list<T> spare_;
};

}  // namespace transport::cm

#endif  // TRANSPORT_CM_RESERVED_QUEUE_H_
