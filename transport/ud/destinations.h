// The destinations that a queue pair of datagrams sends to: each with its flow
// on the wire and its path.
#ifndef TRANSPORT_UD_DESTINATIONS_H_
#define TRANSPORT_UD_DESTINATIONS_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <unordered_map>

#include "transport/base/flow.h"
#include "transport/base/types.h"
#include "transport/congestion/path.h"
#include "transport/endpoint/endpoint.h"

namespace transport {

// It stays where it is, and on its path, as long as it is known.
struct Destination {
  Destination(Endpoint& endpoint, const AddressVector& av, const Via& via)
      : flow(av), endpoint(endpoint), path(endpoint.JoinPath(av.destination)) {
    flow.GoBy(via);
  }
  ~Destination() { endpoint.LeavePath(path); }
  Destination(const Destination&) = delete;
  Destination& operator=(const Destination&) = delete;
  Flow flow;
  Endpoint& endpoint;
  Path* const path;
  bool in_use = false;  // while Destinations tidies up
};

class Destinations {
 public:
  // Is not forgotten while there are fewer: applications come back to those to
  // which they have sent before.
  static constexpr size_t kKept = 256;

  // `endpoint` outlives it.
  explicit Destinations(Endpoint& endpoint) : endpoint_(endpoint) {}
  ~Destinations() { Clear(); }

  // The one that `av` names, which is at `via`; made if it is not known. Null:
  // no memory.
  Destination* Find(const AddressVector& av, const Via& via);
  // More are known than are worth keeping: those for which `for_each_in_use`
  // does not call its argument are forgotten.
  bool full() const { return known_.size() >= limit_; }
  void Tidy(const std::function<void(const std::function<void(Destination*)>&)>&
                for_each_in_use);
  void Clear();
  // Something has been sent from `source`.
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
  // Not Abseil's, which are broken after an allocation that has thrown.
  using Known = std::unordered_map<Key, std::unique_ptr<Destination>, Hash>;
  Known known_;
  const Known::value_type* last_ = nullptr;  // that Find has returned
  size_t limit_ = kKept;
};

}  // namespace transport

#endif  // TRANSPORT_UD_DESTINATIONS_H_
