// rdma_join_multicast(3), rdma_leave_multicast(3). There is no subnet
// administrator: the address of a group is its GID (IPv4-mapped), and attaching
// the queue pair makes its sockets join the group.
#include "verbs_api/librdmacm/multicast.h"

#include <rdma/rdma_cma.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "verbs_api/librdmacm/id.h"
#include "verbs_api/librdmacm/queue_pair.h"

namespace librdmacm {
namespace {

// The destination queue pair of multicast packets (IBA 3.5.11).
constexpr uint32_t kMulticastQpn = 0xffffff;

// An id may join a group more than once; the queue pair is attached once.
bool IsAttached(const Id& id, const wire::IpAddress& group) {
  return std::any_of(id.memberships.begin(), id.memberships.end(),
                     [&](const std::shared_ptr<Membership>& m) {
                       return m->attached && m->group == group;
                     });
}

// `id.mutex` is held.
ibv_ah_attr PathToGroup(const Id& id, const wire::IpAddress& group) {
  ibv_ah_attr path = PathTo(id);
  path.grh.dgid = GidOf(group);
  path.grh.traffic_class = id.options.tos;
  return path;
}

int GroupOf(const sockaddr* address, wire::IpAddress* group) {
  EndpointAddress endpoint;
  if (const int error = FromSockaddr(address, &endpoint)) return error;
  *group = endpoint.address;
  return group->is_multicast() ? 0 : EINVAL;
}

int Join(Id& id, const sockaddr* address, uint32_t flags, void* context) {
  auto membership = std::make_shared<Membership>();
  if (const int error = GroupOf(address, &membership->group)) return error;
  membership->receives = flags == RDMA_MC_JOIN_FLAG_FULLMEMBER;
  if (!id.is_datagram()) return EINVAL;
  std::lock_guard<std::mutex> lock(id.mutex);
  // The id must be bound to a device.
  if (id.part.verbs == nullptr) return EINVAL;
  // Both addresses of a packet are of one IP version.
  if (membership->group.is_v4() != id.source.address.is_v4()) return EINVAL;
  UnsentEvent event = id.NewEvent(RDMA_CM_EVENT_MULTICAST_JOIN);
  rdma_ud_param& param = event->part.param.ud;
  param.private_data = context;
  param.ah_attr = PathToGroup(id, membership->group);
  param.qp_num = kMulticastQpn;
  param.qkey = QkeyOf(id);
  event->membership = membership;
  id.memberships.push_back(std::move(membership));
  id.Push(std::move(event));
  return 0;
}

// Detaches the queue pair with the last membership of the group.
void Detach(Id& id, Membership& membership) {
  if (!membership.attached) return;
  membership.attached = false;
  if (id.part.qp == nullptr || IsAttached(id, membership.group)) return;
  const ibv_gid gid = GidOf(membership.group);
  ibv_detach_mcast(id.part.qp, &gid, 0);
}

int Leave(Id& id, const sockaddr* address) {
  EndpointAddress endpoint;
  if (const int error = FromSockaddr(address, &endpoint)) return error;
  const auto found = std::find_if(id.memberships.begin(), id.memberships.end(),
                                  [&](const std::shared_ptr<Membership>& m) {
                                    return m->group == endpoint.address;
                                  });
  if (found == id.memberships.end()) return EADDRNOTAVAIL;
  const std::shared_ptr<Membership> membership = *found;
  id.memberships.erase(found);
  membership->left = true;
  Detach(id, *membership);
  // If the application leaves before it took the join event, the event is
  // dropped.
  std::lock_guard<std::mutex> lock(id.mutex);
  id.channel->WithdrawIf(
      [&](const Event& event) { return event.membership == membership; });
  return 0;
}

}  // namespace

int FinishJoining(Id& id, Event& event) {
  Membership& membership = *event.membership;
  if (!membership.receives || membership.left) return 0;
  if (!IsAttached(id, membership.group)) {
    const ibv_gid gid = GidOf(membership.group);
    if (const int error = ibv_attach_mcast(id.part.qp, &gid, 0)) {
      if (error == ENOMEM) return error;
      event.part.event = RDMA_CM_EVENT_MULTICAST_ERROR;
      event.part.status = -error;
      return 0;
    }
  }
  membership.attached = true;
  return 0;
}

void DetachAll(Id& id) {
  for (const std::shared_ptr<Membership>& membership : id.memberships) {
    Detach(id, *membership);
  }
}

CM_EXPORT int rdma_join_multicast(rdma_cm_id* pointer, sockaddr* address,
                                  void* context) {
  return CompleteCall(pointer, WaitingCall::kJoin, [&](Id& id) {
    return Join(id, address, RDMA_MC_JOIN_FLAG_FULLMEMBER, context);
  });
}

CM_EXPORT int rdma_join_multicast_ex(rdma_cm_id* pointer,
                                     rdma_cm_join_mc_attr_ex* attr,
                                     void* context) {
  return CompleteCall(pointer, WaitingCall::kJoin, [&](Id& id) -> int {
    constexpr uint32_t kNeeded =
        RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
    if (attr == nullptr) return EINVAL;
    if (attr->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED) return ENOTSUP;
    if ((attr->comp_mask & kNeeded) != kNeeded) return EINVAL;
    if (attr->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED) return EINVAL;
    return Join(id, attr->addr, attr->join_flags, context);
  });
}

CM_EXPORT int rdma_leave_multicast(rdma_cm_id* pointer, sockaddr* address) {
  return IdCall(pointer, [&](Id& id) { return Leave(id, address); });
}

}  // namespace librdmacm
