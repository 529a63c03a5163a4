#include "rxe_user/devices/netdev.h"

#include <errno.h>
#include <linux/ethtool.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netlink/errno.h>
#include <netlink/msg.h>
#include <netlink/object.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <new>

#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/unique_fd.h"
#include "rxe_user/devices/netlink.h"

namespace rxe_user {
namespace {

constexpr char kCannotList[] = "cannot list the network interfaces";

// Asks ethtool, since rtnetlink does not report the speed. 0 if the driver does
// not report it.
uint64_t SpeedMbps(int fd, const std::string& name) {
  ifreq request{};
  name.copy(request.ifr_name, sizeof(request.ifr_name) - 1);
  ethtool_cmd settings{};
  settings.cmd = ETHTOOL_GSET;
  request.ifr_data = reinterpret_cast<char*>(&settings);
  if (::ioctl(fd, SIOCETHTOOL, &request) != 0) return 0;
  const uint32_t speed = ethtool_cmd_speed(&settings);
  const bool known =
      speed != static_cast<uint32_t>(SPEED_UNKNOWN) && speed != 0xffff;
  return known ? speed : 0;
}

Interface ToInterface(rtnl_link* link) {
  Interface out;
  out.name = rtnl_link_get_name(link);
  out.index = static_cast<uint32_t>(rtnl_link_get_ifindex(link));
  out.mtu = rtnl_link_get_mtu(link);
  const unsigned flags = rtnl_link_get_flags(link);
  out.up = flags & IFF_UP;
  out.running = flags & IFF_RUNNING;
  out.loopback = flags & IFF_LOOPBACK;
  if (rtnl_link_get_arptype(link) == ARPHRD_ETHER) {
    out.mac = netlink::ToMac(rtnl_link_get_addr(link)).value_or(out.mac);
  }
  if (const char* kind = rtnl_link_get_type(link)) out.kind = kind;
  return out;
}

// IPv4 first, then global IPv6, then link-local.
int AddressRank(const LocalAddress& local) {
  if (local.address.is_v4()) return 0;
  return local.scope_id == 0 ? 1 : 2;
}

// Calls `f` with each element of a cache, as the cache's type.
template <typename T, typename F>
void ForEach(const netlink::Cache& cache, F&& f) {
  for (nl_object* object = nl_cache_get_first(cache.get()); object != nullptr;
       object = nl_cache_get_next(object)) {
    f(reinterpret_cast<T*>(object));
  }
}

void AddAddress(rtnl_addr* address, Interface* interface) {
  const auto local = netlink::ToIpAddress(rtnl_addr_get_local(address));
  if (!local.has_value()) return;
  interface->addresses.push_back(OnInterface(*local, interface->index));
}

// Adds what rtnetlink does not report with the link. `fd`: any socket.
void Complete(int fd, Interface* interface) {
  std::stable_sort(interface->addresses.begin(), interface->addresses.end(),
                   [](const LocalAddress& a, const LocalAddress& b) {
                     return AddressRank(a) < AddressRank(b);
                   });
  interface->speed_mbps = SpeedMbps(fd, interface->name);
}

// The context of OnAddress.
struct Reading {
  Interface* interface;
  bool no_memory = false;  // an address is missing
};

int OnAddress(nl_msg* message, void* argument) {
  const auto add = [](nl_object* object, void* context) {
    auto* const reading = static_cast<Reading*>(context);
    auto* const address = reinterpret_cast<rtnl_addr*>(object);
    // A kernel before 4.20 reports the addresses of all interfaces.
    if (rtnl_addr_get_ifindex(address) !=
        static_cast<int>(reading->interface->index)) {
      return;
    }
    try {
      AddAddress(address, reading->interface);
    } catch (const std::bad_alloc&) {  // must not pass through libnl
      reading->no_memory = true;
    }
  };
  const int error = nl_msg_parse(message, add, argument);
  if (error == -NLE_NOMEM || static_cast<Reading*>(argument)->no_memory) {
    return -NLE_NOMEM;  // ends the dump
  }
  return error < 0 ? NL_SKIP : NL_OK;
}

// The lock of libnl is held.
int ReadAddresses(nl_sock* socket, Interface* interface) {
  const int strict = 1;
  // Without this option the kernel reports more than was asked for.
  (void)::setsockopt(nl_socket_get_fd(socket), SOL_NETLINK,
                     NETLINK_GET_STRICT_CHK, &strict, sizeof(strict));
  ifaddrmsg wanted{};
  wanted.ifa_index = interface->index;
  Reading reading = {interface};
  nl_socket_modify_cb(socket, NL_CB_VALID, NL_CB_CUSTOM, OnAddress, &reading);
  int error = 0;
  do {
    interface->addresses.clear();
    error = nl_send_simple(socket, RTM_GETADDR, NLM_F_DUMP, &wanted,
                           sizeof(wanted));
    if (error >= 0) error = nl_recvmsgs_default(socket);
  } while (error == -NLE_DUMP_INTR);  // addresses changed meanwhile
  return error;
}

}  // namespace

absl::StatusOr<std::vector<Interface>> ReadInterfaces() {
  const UniqueFd ethtool(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!ethtool.valid()) return ErrnoStatus(errno, kCannotList);
  std::map<uint32_t, Interface> by_index;
  {
    const std::lock_guard lock(netlink::Lock());
    const absl::StatusOr<netlink::Socket> socket =
        netlink::Connect(kCannotList);
    if (!socket.ok()) return socket.status();
    nl_cache* cache = nullptr;
    int error = rtnl_link_alloc_cache(socket->get(), AF_UNSPEC, &cache);
    if (error < 0) return netlink::ErrorStatus(error, kCannotList);
    const netlink::Cache links(cache);
    error = rtnl_addr_alloc_cache(socket->get(), &cache);
    if (error < 0) return netlink::ErrorStatus(error, kCannotList);
    const netlink::Cache addresses(cache);

    ForEach<rtnl_link>(links, [&](rtnl_link* link) {
      Interface interface = ToInterface(link);
      by_index.emplace(interface.index, std::move(interface));
    });
    ForEach<rtnl_addr>(addresses, [&](rtnl_addr* address) {
      const auto index = static_cast<uint32_t>(rtnl_addr_get_ifindex(address));
      const auto interface = by_index.find(index);
      if (interface != by_index.end()) AddAddress(address, &interface->second);
    });
    ForEach<rtnl_link>(links, [&](rtnl_link* link) {
      const auto master =
          by_index.find(static_cast<uint32_t>(rtnl_link_get_master(link)));
      if (master == by_index.end()) return;
      Interface& port =
          by_index.at(static_cast<uint32_t>(rtnl_link_get_ifindex(link)));
      port.master = master->second.name;
      port.master_kind = master->second.kind;
    });
  }

  std::vector<Interface> result;
  for (auto& [index, interface] : by_index) {
    Complete(ethtool.get(), &interface);
    result.push_back(std::move(interface));
  }
  return result;
}

absl::StatusOr<std::optional<Interface>> ReadInterface(uint32_t index) {
  if (index == 0) return std::nullopt;  // libnl ends the program for index 0
  const UniqueFd ethtool(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!ethtool.valid()) return ErrnoStatus(errno, kCannotList);
  std::optional<Interface> interface;
  {
    const std::lock_guard lock(netlink::Lock());
    const absl::StatusOr<netlink::Socket> socket =
        netlink::Connect(kCannotList);
    if (!socket.ok()) return socket.status();
    rtnl_link* found = nullptr;
    int error = rtnl_link_get_kernel(socket->get(), static_cast<int>(index),
                                     nullptr, &found);
    if (error == -NLE_NODEV || error == -NLE_OBJ_NOTFOUND) return std::nullopt;
    if (error < 0) return netlink::ErrorStatus(error, kCannotList);
    const netlink::Link link(found);
    interface = ToInterface(link.get());
    error = ReadAddresses(socket->get(), &*interface);
    if (error < 0) return netlink::ErrorStatus(error, kCannotList);
  }
  Complete(ethtool.get(), &*interface);
  return interface;
}

std::optional<std::array<uint8_t, 6>> NeighborMac(
    uint32_t ifindex, const wire::IpAddress& address) {
  const std::lock_guard lock(netlink::Lock());
  const absl::StatusOr<netlink::Socket> socket = netlink::Connect("neighbors");
  nl_cache* cache = nullptr;
  if (!socket.ok() || rtnl_neigh_alloc_cache(socket->get(), &cache) < 0) {
    return std::nullopt;
  }
  const netlink::Cache table(cache);
  const netlink::Address wanted = netlink::FromIpAddress(address);
  const netlink::Neighbor neighbor(
      rtnl_neigh_get(table.get(), static_cast<int>(ifindex), wanted.get()));
  if (neighbor == nullptr) return std::nullopt;
  const int state = rtnl_neigh_get_state(neighbor.get());
  if (state < 0 || (state & netlink::kValidNeighbor) == 0) return std::nullopt;
  return netlink::ToMac(rtnl_neigh_get_lladdr(neighbor.get()));
}

}  // namespace rxe_user
