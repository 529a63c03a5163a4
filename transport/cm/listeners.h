// Who listens on which service IDs.
#ifndef TRANSPORT_CM_LISTENERS_H_
#define TRANSPORT_CM_LISTENERS_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "transport/cm/types.h"

namespace transport::cm {

struct Listener {
  ListenerId id = 0;
  ListenOptions options;
  size_t waiting = 0;  // requests that the application has not seen
};

class Listeners {
 public:
  // 0 if one with the same mask, service ID and address is there. Throws
  // std::bad_alloc; nothing has changed then.
  ListenerId Add(const ListenOptions& options);
  // False if there is none.
  bool Remove(ListenerId id);
  // Null if there is none.
  Listener* Find(ListenerId id);
  // The one for a request: that with the most bits in its mask, and among these
  // the one of this address rather than of its family, and that rather than of
  // all.
  Listener* Match(uint64_t service_id, const wire::IpAddress& local);

  size_t size() const { return listeners_.size(); }

 private:
  struct NarrowFirst {
    bool operator()(uint64_t a, uint64_t b) const {
      const int bits_a = std::popcount(a);
      const int bits_b = std::popcount(b);
      return bits_a != bits_b ? bits_a > bits_b : a < b;
    }
  };
  using Key = std::pair<uint64_t, wire::IpAddress>;

  std::map<ListenerId, Listener> listeners_;
  // By mask, then service ID and address.
  std::map<uint64_t, std::map<Key, ListenerId>, NarrowFirst> by_mask_;
  ListenerId last_id_ = 0;
};

}  // namespace transport::cm

#endif  // TRANSPORT_CM_LISTENERS_H_
