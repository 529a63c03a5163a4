// The service IDs that are listened on.
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
  // 0 if mask, service ID and address are in use. Throws std::bad_alloc,
  // without any change.
  ListenerId Add(const ListenOptions& options);
  // False if there is no such listener.
  bool Remove(ListenerId id);
  // Null if there is no such listener.
  Listener* Find(ListenerId id);
  // The listener for a request: the one with the most mask bits; among those,
  // the one for this address, then the one for its family, then the one for
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
