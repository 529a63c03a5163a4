// An ordered index of connections. Each connection brings the memory of its
// entry, so entering and leaving never allocate.
#ifndef TRANSPORT_CM_RESERVED_INDEX_H_
#define TRANSPORT_CM_RESERVED_INDEX_H_

#include <cstddef>
#include <map>
#include <utility>

#include "transport/cm/types.h"

namespace transport::cm {

template <typename Key>
class ReservedIndex {
  using Map = std::map<Key, CmId>;

 public:
  using const_iterator = typename Map::const_iterator;

  // Holds the memory of one entry while it is not in the index.
  class Entry {
   public:
    Entry() {
      Map one;
      one.try_emplace(Key{});
      node_ = one.extract(one.begin());
    }
    bool in_index() const { return node_.empty(); }

   private:
    friend ReservedIndex;
    typename Map::node_type node_;
  };

  // Requires an entry that is not in the index. False, without any change, if
  // the key is.
  bool Enter(Entry& entry, const Key& key, CmId id) {
    entry.node_.key() = key;
    entry.node_.mapped() = id;
    auto entered = map_.insert(std::move(entry.node_));
    entry.node_ = std::move(entered.node);
    return entered.inserted;
  }
  // `key`: the key of the entry. No effect if it is not in the index.
  void Leave(Entry& entry, const Key& key) {
    if (entry.in_index()) entry.node_ = map_.extract(key);
  }

  // 0 if the key is absent.
  CmId Find(const Key& key) const {
    const auto found = map_.find(key);
    return found == map_.end() ? 0 : found->second;
  }

  bool empty() const { return map_.empty(); }
  const_iterator begin() const { return map_.begin(); }
  const_iterator end() const { return map_.end(); }
  // The first entry not before `key`.
  const_iterator From(const Key& key) const { return map_.lower_bound(key); }

 private:
  Map map_;
};

}  // namespace transport::cm

#endif  // TRANSPORT_CM_RESERVED_INDEX_H_
