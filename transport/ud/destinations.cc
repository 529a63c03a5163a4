#include "transport/ud/destinations.h"

#include <algorithm>

#include "absl/hash/hash.h"

namespace transport {

size_t Destinations::Hash::operator()(const AddressVector& av) const {
  return absl::HashOf(av.destination, av.source_port, av.flow_label,
                      av.traffic_class);
}

Destination* Destinations::Find(const AddressVector& av) {
  if (last_ != nullptr && last_->flow.av == av) return last_;
  std::unique_ptr<Destination>& known = known_[av];
  if (known == nullptr) {
    known = std::make_unique<Destination>(av);
    known->path = endpoint_.JoinPath(av.destination);
  }
  return last_ = known.get();
}

void Destinations::Tidy(
    const std::function<void(const std::function<void(Destination*)>&)>&
        for_each_in_use) {
  for (auto& [av, known] : known_) known->in_use = false;
  for_each_in_use([](Destination* one) { one->in_use = true; });
  last_ = nullptr;
  for (auto it = known_.begin(); it != known_.end();) {
    const auto next = std::next(it);
    if (!it->second->in_use) {
      endpoint_.LeavePath(it->second->path);
      known_.erase(it);
    }
    it = next;
  }
  // So that it pays to look at all of them again.
  limit_ = std::max(kKept, 2 * known_.size());
}

void Destinations::Clear() {
  for (auto& [av, known] : known_) endpoint_.LeavePath(known->path);
  known_.clear();
  last_ = nullptr;
  limit_ = kKept;
}

bool Destinations::SendsFrom(const wire::IpAddress& source) const {
  return std::any_of(
      known_.begin(), known_.end(),
      [&source](const auto& known) { return known.first.source == source; });
}

}  // namespace transport
