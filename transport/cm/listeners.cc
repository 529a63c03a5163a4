#include "transport/cm/listeners.h"

namespace transport::cm {

ListenerId Listeners::Add(const ListenOptions& options) {
  const Key key = {options.service_id & options.mask, options.local};
  const auto same_mask = by_mask_.find(options.mask);
  if (same_mask != by_mask_.end() && same_mask->second.contains(key)) return 0;
  do {
    ++last_id_;
  } while (last_id_ == 0 || listeners_.contains(last_id_));
  // Allocates everything first; merge does not allocate.
  decltype(listeners_) made;
  made.try_emplace(last_id_, Listener{.id = last_id_, .options = options});
  decltype(by_mask_) fresh;
  fresh[options.mask].try_emplace(key, last_id_);
  auto& found = fresh.begin()->second;
  by_mask_.merge(fresh);
  if (!fresh.empty()) by_mask_.find(options.mask)->second.merge(found);
  listeners_.merge(made);
  return last_id_;
}

bool Listeners::Remove(ListenerId id) {
  const auto found = listeners_.find(id);
  if (found == listeners_.end()) return false;
  const ListenOptions& options = found->second.options;
  const auto same_mask = by_mask_.find(options.mask);
  same_mask->second.erase({options.service_id & options.mask, options.local});
  if (same_mask->second.empty()) by_mask_.erase(same_mask);
  listeners_.erase(found);
  return true;
}

Listener* Listeners::Find(ListenerId id) {
  const auto found = listeners_.find(id);
  return found == listeners_.end() ? nullptr : &found->second;
}

Listener* Listeners::Match(uint64_t service_id, const wire::IpAddress& local) {
  const auto find = [&](const auto& same_mask, uint64_t mask,
                        const wire::IpAddress& address) -> Listener* {
    const auto found = same_mask.find({service_id & mask, address});
    return found == same_mask.end() ? nullptr : Find(found->second);
  };
  for (const auto& [mask, same_mask] : by_mask_) {
    if (Listener* const l = find(same_mask, mask, local)) return l;
    if (local.is_v4()) {
      if (Listener* const l =
              find(same_mask, mask, wire::IpAddress::FromV4(0))) {
        return l;
      }
    }
    Listener* const l = find(same_mask, mask, wire::IpAddress{});
    if (l != nullptr && !(local.is_v4() && l->options.ipv6_only)) return l;
  }
  return nullptr;
}

}  // namespace transport::cm
