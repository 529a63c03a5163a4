#include "rxe_user/devices/netdev.h"

#include <errno.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "rxe_user/base/errno_status.h"

namespace rxe_user {
namespace {

// One ioctl by interface name; false when the driver or the kernel refuses.
bool Query(int fd, unsigned long request, const std::string& name, ifreq* ifr) {
  std::memset(ifr->ifr_name, 0, sizeof(ifr->ifr_name));
  name.copy(ifr->ifr_name, sizeof(ifr->ifr_name) - 1);
  return ::ioctl(fd, request, ifr) == 0;
}

void ReadHardware(int fd, Interface* interface) {
  ifreq ifr{};
  if (Query(fd, SIOCGIFMTU, interface->name, &ifr)) {
    interface->mtu = static_cast<uint32_t>(ifr.ifr_mtu);
  }
  if (Query(fd, SIOCGIFHWADDR, interface->name, &ifr) &&
      ifr.ifr_hwaddr.sa_family == ARPHRD_ETHER) {
    std::memcpy(interface->mac.data(), ifr.ifr_hwaddr.sa_data,
                interface->mac.size());
  }
  ethtool_drvinfo driver{};
  driver.cmd = ETHTOOL_GDRVINFO;
  ifr.ifr_data = reinterpret_cast<char*>(&driver);
  if (Query(fd, SIOCETHTOOL, interface->name, &ifr)) {
    interface->driver.assign(driver.driver,
                             strnlen(driver.driver, sizeof(driver.driver)));
  }
  ethtool_cmd settings{};
  settings.cmd = ETHTOOL_GSET;
  ifr.ifr_data = reinterpret_cast<char*>(&settings);
  if (Query(fd, SIOCETHTOOL, interface->name, &ifr)) {
    const uint32_t speed = ethtool_cmd_speed(&settings);
    if (speed != static_cast<uint32_t>(SPEED_UNKNOWN) && speed != 0xffff) {
      interface->speed_mbps = speed;
    }
  }
}

// IPv4 first, then global IPv6, then link-local.
int AddressRank(const GidEntry& entry) {
  if (entry.address.is_v4()) return 0;
  return entry.scope_id == 0 ? 1 : 2;
}

bool ToGid(const sockaddr* address, uint32_t ifindex, GidEntry* out) {
  if (address == nullptr) return false;
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    out->address = wire::IpAddress::FromV4(v4->sin_addr.s_addr);
    return true;
  }
  if (address->sa_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
    out->address = wire::IpAddress::FromGid(v6->sin6_addr.s6_addr);
    out->scope_id = IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr) ? ifindex : 0;
    return true;
  }
  return false;
}

// Whether the interface is up and has carrier.
bool ReadUp(uint32_t ifindex) {
  char name[IF_NAMESIZE];
  if (::if_indextoname(ifindex, name) == nullptr) return false;
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  ifreq ifr{};
  const bool ok = Query(fd, SIOCGIFFLAGS, name, &ifr);
  ::close(fd);
  return ok && (ifr.ifr_flags & IFF_UP) && (ifr.ifr_flags & IFF_RUNNING);
}

}  // namespace

absl::StatusOr<std::vector<Interface>> ReadInterfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    return ErrnoStatus(errno, "cannot list the network interfaces");
  }
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    absl::Status status =
        ErrnoStatus(errno, "cannot list the network interfaces");
    ::freeifaddrs(list);
    return status;
  }
  std::map<uint32_t, Interface> by_index;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    // "eth0:1", a labelled second IPv4 address, is still eth0.
    std::string name = entry->ifa_name;
    name.resize(std::min(name.size(), name.find(':')));
    ifreq ifr{};
    if (!Query(fd, SIOCGIFINDEX, name, &ifr)) continue;  // gone meanwhile
    const auto index = static_cast<uint32_t>(ifr.ifr_ifindex);
    Interface& interface = by_index[index];
    if (interface.index == 0) {
      interface.index = index;
      interface.name = name;
      interface.up = entry->ifa_flags & IFF_UP;
      interface.running = entry->ifa_flags & IFF_RUNNING;
      interface.loopback = entry->ifa_flags & IFF_LOOPBACK;
      ReadHardware(fd, &interface);
    }
    GidEntry gid;
    if (ToGid(entry->ifa_addr, index, &gid)) interface.addresses.push_back(gid);
  }
  ::close(fd);
  ::freeifaddrs(list);

  std::vector<Interface> result;
  for (auto& [index, interface] : by_index) {
    std::stable_sort(interface.addresses.begin(), interface.addresses.end(),
                     [](const GidEntry& a, const GidEntry& b) {
                       return AddressRank(a) < AddressRank(b);
                     });
    result.push_back(std::move(interface));
  }
  return result;
}

absl::StatusOr<std::unique_ptr<LinkMonitor>> LinkMonitor::Open(
    uint32_t ifindex) {
  const int fd = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK,
                          NETLINK_ROUTE);
  if (fd < 0) return ErrnoStatus(errno, "rtnetlink socket");
  sockaddr_nl local{};
  local.nl_family = AF_NETLINK;
  local.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
  if (::bind(fd, reinterpret_cast<sockaddr*>(&local), sizeof(local)) != 0) {
    absl::Status status = ErrnoStatus(errno, "rtnetlink bind");
    ::close(fd);
    return status;
  }
  return std::unique_ptr<LinkMonitor>(
      new LinkMonitor(fd, ifindex, ReadUp(ifindex)));
}

LinkMonitor::~LinkMonitor() { ::close(fd_); }

void LinkMonitor::SetUp(bool up, std::vector<LinkChange>* changes) {
  if (up == up_) return;
  up_ = up;
  changes->push_back(up ? LinkChange::kUp : LinkChange::kDown);
}

std::vector<LinkChange> LinkMonitor::Read() {
  std::vector<LinkChange> changes;
  alignas(nlmsghdr) char buffer[16384];
  // Bounded: under a storm of messages the rest waits for the next call.
  for (int i = 0; i < 64; ++i) {
    ssize_t received = ::recv(fd_, buffer, sizeof(buffer), MSG_DONTWAIT);
    if (received < 0 && errno == EINTR) continue;
    if (received < 0 && errno == ENOBUFS) {
      // Messages were lost: look for ourselves, and assume the worst.
      SetUp(ReadUp(ifindex_), &changes);
      changes.push_back(LinkChange::kAddresses);
      continue;
    }
    if (received <= 0) break;
    size_t left = static_cast<size_t>(received);
    for (auto* m = reinterpret_cast<nlmsghdr*>(buffer); NLMSG_OK(m, left);
         m = NLMSG_NEXT(m, left)) {
      if (m->nlmsg_type == RTM_NEWLINK || m->nlmsg_type == RTM_DELLINK) {
        const auto* link = static_cast<const ifinfomsg*>(NLMSG_DATA(m));
        if (static_cast<uint32_t>(link->ifi_index) != ifindex_ ||
            link->ifi_family != AF_UNSPEC) {
          continue;
        }
        SetUp(m->nlmsg_type == RTM_NEWLINK && (link->ifi_flags & IFF_UP) &&
                  (link->ifi_flags & IFF_RUNNING),
              &changes);
      } else if (m->nlmsg_type == RTM_NEWADDR || m->nlmsg_type == RTM_DELADDR) {
        const auto* address = static_cast<const ifaddrmsg*>(NLMSG_DATA(m));
        if (address->ifa_index == ifindex_) {
          changes.push_back(LinkChange::kAddresses);
        }
      }
    }
  }
  return changes;
}

}  // namespace rxe_user
