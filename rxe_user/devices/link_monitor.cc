#include "rxe_user/devices/link_monitor.h"

#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netlink/errno.h>
#include <netlink/object.h>
#include <sys/socket.h>
#include <unistd.h>

#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "rxe_user/devices/netlink.h"

namespace rxe_user {
namespace {

// Receive buffer in bytes. libnl's default of 32 KiB holds two dozen messages
// about links.
constexpr int kReceiveBuffer = 256 << 10;
// Messages per Read; more are left for the next one.
constexpr int kMessagesPerRead = 64;

// A socket that has subscribed to changes.
absl::StatusOr<netlink::Socket> Subscribe() {
  absl::StatusOr<netlink::Socket> connected =
      netlink::ConnectForEvents("rtnetlink socket");
  if (!connected.ok()) return connected;
  nl_sock* const socket = connected->get();
  int error = nl_socket_set_buffer_size(socket, kReceiveBuffer, 0);
  if (error == 0) {
    error = nl_socket_add_memberships(socket, RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR,
                                      RTNLGRP_IPV6_IFADDR, RTNLGRP_NONE);
  }
  if (error < 0) return netlink::ErrorStatus(error, "rtnetlink socket");
  return connected;
}

}  // namespace

LinkMonitor::State LinkMonitor::StateOf(rtnl_link* link) {
  const unsigned flags = rtnl_link_get_flags(link);
  return {.up = (flags & IFF_UP) && (flags & IFF_RUNNING),
          .mtu = rtnl_link_get_mtu(link)};
}

// Reads the current state. Absent if the kernel cannot be asked. The lock is
// held.
std::optional<LinkMonitor::State> LinkMonitor::ReadState(uint32_t ifindex) {
  if (ifindex == 0) return State();  // libnl ends the program for index 0
  const absl::StatusOr<netlink::Socket> socket = netlink::Connect("rtnetlink");
  if (!socket.ok()) return std::nullopt;
  rtnl_link* found = nullptr;
  const int error = rtnl_link_get_kernel(
      socket->get(), static_cast<int>(ifindex), nullptr, &found);
  const netlink::Link link(found);
  return error == 0 ? StateOf(link.get()) : State();
}

absl::StatusOr<std::unique_ptr<LinkMonitor>> LinkMonitor::Open(
    uint32_t ifindex) {
  std::unique_lock lock(netlink::Lock());
  absl::StatusOr<netlink::Socket> socket = Subscribe();
  if (!socket.ok()) return socket.status();
  const State state = ReadState(ifindex).value_or(State());
  lock.unlock();  // entering a fork guard requires that it is not held
  return std::unique_ptr<LinkMonitor>(
      new LinkMonitor(socket->release(), ifindex, state));
}

LinkMonitor::LinkMonitor(nl_sock* socket, uint32_t ifindex, State state)
    : ForkGuard(ForkLevel::kDescriptors),
      socket_(socket),
      ifindex_(ifindex),
      state_(state) {
  EnterForkGuard();
}

LinkMonitor::~LinkMonitor() {
  LeaveForkGuard();
  if (socket_ == nullptr) return;
  const std::lock_guard lock(netlink::Lock());
  nl_socket_free(socket_);
}

// Leaks the memory: if the program itself uses libnl, a thread of the parent
// may have held libnl's lock during fork().
void LinkMonitor::AfterForkInChild() {
  ::close(nl_socket_get_fd(socket_));
  socket_ = nullptr;
}

int LinkMonitor::fd() const {
  return socket_ == nullptr ? -1 : nl_socket_get_fd(socket_);
}

std::vector<LinkChange> LinkMonitor::Read() {
  const std::lock_guard lock(netlink::Lock());
  for (int i = 0; i < kMessagesPerRead; ++i) {
    const int error = netlink::Receive(
        socket_, [this](nl_object* object) { OnObject(object); });
    if (error == -NLE_AGAIN) break;
    if (error == -NLE_NOMEM) Resync();  // ENOBUFS: messages were lost
  }
  return std::exchange(changes_, {});
}

// Reads the state again, and assumes that addresses have changed as well.
void LinkMonitor::Resync() {
  if (const std::optional<State> state = ReadState(ifindex_)) SetState(*state);
  changes_.push_back(LinkChange::kAddresses);
}

void LinkMonitor::OnObject(nl_object* object) {
  const auto index = static_cast<int>(ifindex_);
  const std::string_view type = nl_object_get_type(object);
  if (type == "route/link") {
    auto* const link = reinterpret_cast<rtnl_link*>(object);
    // Bridges send messages of their own family about their ports.
    if (rtnl_link_get_ifindex(link) != index ||
        rtnl_link_get_family(link) != AF_UNSPEC) {
      return;
    }
    State state = StateOf(link);
    if (nl_object_get_msgtype(object) != RTM_NEWLINK) state.up = false;
    SetState(state);
  } else if (type == "route/addr") {
    auto* const address = reinterpret_cast<rtnl_addr*>(object);
    if (rtnl_addr_get_ifindex(address) != index) return;
    changes_.push_back(LinkChange::kAddresses);
  }
}

void LinkMonitor::SetState(State state) {
  const State before = std::exchange(state_, state);
  if (state.mtu != before.mtu) changes_.push_back(LinkChange::kMtu);
  if (state.up != before.up) {
    changes_.push_back(state.up ? LinkChange::kUp : LinkChange::kDown);
  }
}

}  // namespace rxe_user
