#include "rxe_user/devices/neighbor.h"

#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netlink/attr.h>
#include <netlink/errno.h>
#include <netlink/msg.h>
#include <netlink/object.h>
#include <netlink/route/nexthop.h>
#include <netlink/route/route.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <mutex>
#include <string_view>

#include "rxe_user/base/unique_fd.h"
#include "rxe_user/devices/netlink.h"

namespace rxe_user {
namespace {

using Message = std::unique_ptr<nl_msg, netlink::Free<nlmsg_free>>;

NeighborState ToState(rtnl_neigh* neighbor) {
  const int state = rtnl_neigh_get_state(neighbor);
  if (state < 0) return NeighborState::kUnknown;
  if ((state & netlink::kValidNeighbor) != 0) return NeighborState::kKnown;
  return state == NUD_FAILED ? NeighborState::kFailed : NeighborState::kUnknown;
}

int Family(const wire::IpAddress& address) {
  return address.is_v4() ? AF_INET : AF_INET6;
}

// False if there is no memory.
bool Put(nl_msg* message, int attribute, const wire::IpAddress& address) {
  const netlink::Address value = netlink::FromIpAddress(address);
  return value != nullptr && nla_put_addr(message, attribute, value.get()) == 0;
}

template <typename Body>
Message MakeRequest(int type, Body body) {
  Message message(nlmsg_alloc_simple(type, 0));
  if (message != nullptr &&
      nlmsg_append(message.get(), &body, sizeof(body), NLMSG_ALIGNTO) != 0) {
    message.reset();
  }
  return message;
}

// 0, or a negative libnl error. The lock is held.
int Ask(nl_msg* request, netlink::OnObject on_answer) {
  absl::StatusOr<netlink::Socket> socket = netlink::Connect("neighbors");
  if (!socket.ok()) return -NLE_FAILURE;
  nl_socket_disable_auto_ack(socket->get());
  // The kernel answers before the send returns, so waiting is not needed.
  int error = nl_socket_set_nonblocking(socket->get());
  if (error == 0) error = nl_send_auto(socket->get(), request);
  return error < 0 ? error : netlink::Receive(socket->get(), on_answer);
}

}  // namespace

std::optional<Neighbor> NeighborOn(const LocalAddress& source,
                                   const wire::IpAddress& destination) {
  const std::lock_guard lock(netlink::Lock());
  const auto bits = static_cast<unsigned char>(destination.is_v4() ? 32 : 128);
  rtmsg body = {};
  body.rtm_family = static_cast<unsigned char>(Family(destination));
  body.rtm_dst_len = body.rtm_src_len = bits;
  const Message request = MakeRequest(RTM_GETROUTE, body);
  if (request == nullptr || !Put(request.get(), RTA_DST, destination) ||
      !Put(request.get(), RTA_SRC, source.address) ||
      (source.scope_id != 0 &&
       nla_put_u32(request.get(), RTA_OIF, source.scope_id) != 0)) {
    return std::nullopt;
  }
  std::optional<Neighbor> found;
  const int error = Ask(request.get(), [&](nl_object* object) {
    if (nl_object_get_type(object) != std::string_view("route/route")) return;
    auto* const route = reinterpret_cast<rtnl_route*>(object);
    rtnl_nexthop* const hop = rtnl_route_nexthop_n(route, 0);
    if (rtnl_route_get_type(route) != RTN_UNICAST || hop == nullptr) return;
    found = {static_cast<uint32_t>(rtnl_route_nh_get_ifindex(hop)),
             destination};
    // A gateway, perhaps of another family.
    nl_addr* gateway = rtnl_route_nh_get_gateway(hop);
    if (gateway == nullptr) gateway = rtnl_route_nh_get_via(hop);
    if (gateway == nullptr) return;
    found->address = netlink::ToIpAddress(gateway).value_or(destination);
  });
  if (error < 0 || !found.has_value() || found->interface == 0) {
    return std::nullopt;
  }
  return found;
}

std::optional<NeighborState> StateOfNeighbor(const Neighbor& neighbor) {
  const std::lock_guard lock(netlink::Lock());
  ndmsg body = {};
  body.ndm_family = static_cast<unsigned char>(Family(neighbor.address));
  body.ndm_ifindex = static_cast<int>(neighbor.interface);
  const Message request = MakeRequest(RTM_GETNEIGH, body);
  if (request == nullptr || !Put(request.get(), NDA_DST, neighbor.address)) {
    return std::nullopt;
  }
  std::optional<NeighborState> state;
  const int error = Ask(request.get(), [&](nl_object* object) {
    if (nl_object_get_type(object) != std::string_view("route/neigh")) return;
    state = ToState(reinterpret_cast<rtnl_neigh*>(object));
  });
  if (error == -NLE_OBJ_NOTFOUND) return NeighborState::kUnknown;
  return error < 0 ? std::nullopt : state;
}

bool AsksForNeighbors(uint32_t interface) {
  const UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request = {};
  if (!fd.valid() || if_indextoname(interface, request.ifr_name) == nullptr ||
      ::ioctl(fd.get(), SIOCGIFFLAGS, &request) != 0) {
    return true;
  }
  return (request.ifr_flags & (IFF_LOOPBACK | IFF_NOARP)) == 0;
}

NeighborEvents::~NeighborEvents() {
  if (socket_ == nullptr) return;
  const std::lock_guard lock(netlink::Lock());
  nl_socket_free(socket_);
}

bool NeighborEvents::Subscribe() {
  const std::lock_guard lock(netlink::Lock());
  if (socket_ == nullptr) {
    absl::StatusOr<netlink::Socket> socket =
        netlink::ConnectForEvents("neighbors");
    if (!socket.ok()) return false;
    socket_ = socket->release();
  }
  return nl_socket_add_membership(socket_, RTNLGRP_NEIGH) == 0;
}

// Drains the socket without libnl, which does not read if there is no memory.
void NeighborEvents::Unsubscribe() {
  {
    const std::lock_guard lock(netlink::Lock());
    (void)nl_socket_drop_membership(socket_, RTNLGRP_NEIGH);
  }
  uint8_t byte;
  while (::recv(fd(), &byte, sizeof(byte), MSG_DONTWAIT | MSG_TRUNC) >= 0 ||
         errno == EINTR || errno == ENOBUFS) {
  }
}

int NeighborEvents::fd() const { return nl_socket_get_fd(socket_); }

bool NeighborEvents::Read(OnState on_state) {
  const std::lock_guard lock(netlink::Lock());
  for (;;) {
    const int error = netlink::Receive(socket_, [&](nl_object* object) {
      // RTM_DELNEIGH is never about a neighbor that is being looked up.
      if (nl_object_get_type(object) != std::string_view("route/neigh") ||
          nl_object_get_msgtype(object) != RTM_NEWNEIGH) {
        return;
      }
      auto* const neighbor = reinterpret_cast<rtnl_neigh*>(object);
      // Bridges have their own tables, without IP addresses.
      nl_addr* const address = rtnl_neigh_get_dst(neighbor);
      if (address == nullptr) return;
      if (const auto ip = netlink::ToIpAddress(address)) {
        on_state({static_cast<uint32_t>(rtnl_neigh_get_ifindex(neighbor)), *ip},
                 ToState(neighbor));
      }
    });
    if (error == -NLE_AGAIN) return true;
    if (error < 0 && error != -NLE_INTR) return false;
  }
}

void NeighborEvents::AbandonInChild() {
  if (socket_ != nullptr) ::close(nl_socket_get_fd(socket_));
  socket_ = nullptr;
}

}  // namespace rxe_user
