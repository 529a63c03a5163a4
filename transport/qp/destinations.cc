#include "transport/qp/destinations.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/hash/hash.h"

namespace transport {

size_t Destinations::Hash::operator()(const Key& key) const {
  return absl::HashOf(key.av.destination, key.av.source_port, key.av.flow_label,
                      key.av.traffic_class, key.via.port);
}

Destination* Destinations::Find(const AddressVector& av, const Via& via) {
  const Key key = {av, via};
  if (last_ != nullptr && last_->first == key) return last_->second.get();
  auto known = known_.find(key);
  if (known == known_.end()) {
    try {
      auto made = std::make_unique<Destination>(endpoint_, av, via);
      known = known_.emplace(key, std::move(made)).first;
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }
  last_ = &*known;
  return last_->second.get();
}

void Destinations::DeleteUnused() {
  last_ = nullptr;
  std::erase_if(known_, [](const auto& known) {
    return !std::exchange(known.second->in_use, false);
  });
  // Doubled, so that the next scan pays.
  limit_ = std::max(kKept, 2 * known_.size());
}

void Destinations::Clear() {
  known_.clear();
  last_ = nullptr;
  limit_ = kKept;
}

bool Destinations::SendsFrom(const wire::IpAddress& source) const {
  return std::ranges::any_of(known_, [&source](const auto& known) {
    return known.first.av.source == source;
  });
}

}  // namespace transport
