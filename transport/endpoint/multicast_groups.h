// The queue pairs attached to each multicast group (IBA vol. 1, 10.5; manual
// page ibv_attach_mcast(3)).
#ifndef TRANSPORT_ENDPOINT_MULTICAST_GROUPS_H_
#define TRANSPORT_ENDPOINT_MULTICAST_GROUPS_H_

#include <algorithm>
#include <cstddef>
#include <unordered_map>
#include <vector>

#include "transport/endpoint/endpoint_qp.h"
#include "wire/address.h"

namespace transport {

class MulticastGroups {
 public:
  // Attaching again has no effect. May throw bad_alloc, without any change.
  void Attach(EndpointQp* qp, const wire::IpAddress& group) {
    if (Has(qp, group)) return;
    const auto [it, fresh] = members_.try_emplace(group);
    try {
      it->second.push_back(qp);
    } catch (...) {
      if (fresh) members_.erase(it);
      throw;
    }
  }
  void Detach(EndpointQp* qp, const wire::IpAddress& group) {
    const auto it = members_.find(group);
    if (it == members_.end()) return;
    std::erase(it->second, qp);
    if (it->second.empty()) members_.erase(it);
  }
  // Detaches from all groups. Does not allocate.
  void DetachAll(const EndpointQp* qp) {
    for (auto& [group, members] : members_) std::erase(members, qp);
    std::erase_if(members_, [](const auto& g) { return g.second.empty(); });
  }
  bool Has(const EndpointQp* qp, const wire::IpAddress& group) const {
    const auto it = members_.find(group);
    return it != members_.end() &&
           std::ranges::find(it->second, qp) != it->second.end();
  }
  std::vector<wire::IpAddress> Of(const EndpointQp* qp) const {
    std::vector<wire::IpAddress> groups;
    if (members_.empty()) return groups;
    for (const auto& [group, members] : members_) {
      if (Has(qp, group)) groups.push_back(group);
    }
    return groups;
  }
  // Attached queue pair number `index`, from 0; null beyond the last.
  EndpointQp* At(const wire::IpAddress& group, size_t index) const {
    const auto it = members_.find(group);
    return it != members_.end() && index < it->second.size() ? it->second[index]
                                                             : nullptr;
  }

 private:
  // Not Abseil's maps: they break if an allocation throws.
  std::unordered_map<wire::IpAddress, std::vector<EndpointQp*>> members_;
};

}  // namespace transport

#endif  // TRANSPORT_ENDPOINT_MULTICAST_GROUPS_H_
