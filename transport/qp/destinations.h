// The destinations of a queue pair whose work requests name them (UD, DCI),
// each with its flow and its path.
#ifndef TRANSPORT_QP_DESTINATIONS_H_
#define TRANSPORT_QP_DESTINATIONS_H_

#include <cstddef>
#include <memory>
#include <unordered_map>

#include "transport/base/flow.h"
#include "transport/base/types.h"
#include "transport/congestion/path.h"
#include "transport/endpoint/endpoint.h"

namespace transport {

// Does not move, and stays on its path, while it is in Destinations.
struct Destination {
  Destination(Endpoint& endpoint, const AddressVector& av, const Via& via)
      : flow(av), endpoint(endpoint), path(endpoint.JoinPath(av.destination)) {
    flow.SetVia(via);
  }
  ~Destination() { endpoint.LeavePath(path); }
  Destination(const Destination&) = delete;
  Destination& operator=(const Destination&) = delete;
  Flow flow;
  Endpoint& endpoint;
  Path* const path;
  bool in_use = false;  // a mark for DeleteUnused
};

class Destinations {
 public:
  // Destinations are kept up to this number: applications often return to them.
  static constexpr size_t kKept = 256;

  // `endpoint` outlives it.
  explicit Destinations(Endpoint& endpoint) : endpoint_(endpoint) {}
  ~Destinations() { Clear(); }

  // Finds or creates the destination `av` with the translated address `via`.
  // Null: no memory.
  Destination* Find(const AddressVector& av, const Via& via);
  // full(): the limit is reached. DeleteUnused deletes the destinations that
  // are not marked in_use, and removes the marks.
  bool full() const { return known_.size() >= limit_; }
  void DeleteUnused();
  void Clear();
  // Whether anything was sent from `source`.
  bool SendsFrom(const wire::IpAddress& source) const;
  size_t size() const { return known_.size(); }

 private:
  struct Key {
    AddressVector av;
    Via via;

    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const;
  };

  Endpoint& endpoint_;
  // Not Abseil's maps: they break if an allocation throws.
  using Known = std::unordered_map<Key, std::unique_ptr<Destination>, Hash>;
  Known known_;
  const Known::value_type* last_ = nullptr;  // last result of Find
  size_t limit_ = kKept;
};

}  // namespace transport

#endif  // TRANSPORT_QP_DESTINATIONS_H_
