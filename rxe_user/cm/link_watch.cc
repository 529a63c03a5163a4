#include "rxe_user/cm/link_watch.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "rxe_user/base/unique_fd.h"

namespace rxe_user {
namespace {

constexpr size_t kAddressBytes = 6;  // of Ethernet

// Empty if the interface has no Ethernet address.
std::vector<uint8_t> AddressOf(const nlmsghdr& header) {
  const auto* link = static_cast<const ifinfomsg*>(NLMSG_DATA(&header));
  int length = static_cast<int>(IFLA_PAYLOAD(&header));
  for (const rtattr* a = IFLA_RTA(link); RTA_OK(a, length);
       a = RTA_NEXT(a, length)) {
    if (a->rta_type != IFLA_ADDRESS) continue;
    if (RTA_PAYLOAD(a) != kAddressBytes) break;
    const auto* bytes = static_cast<const uint8_t*>(RTA_DATA(a));
    return {bytes, bytes + RTA_PAYLOAD(a)};
  }
  return {};
}

// Whether an address has changed. A missing address counts as no change.
bool IsAnother(const std::vector<uint8_t>& before,
               const std::vector<uint8_t>& now) {
  return !before.empty() && !now.empty() && before != now;
}

// As AddressOf, from the system. Absent if the interface does not exist. `fd`
// is any socket.
std::optional<std::vector<uint8_t>> AskAddress(int fd, uint32_t interface) {
  // The interface may be renamed between the two calls.
  ifreq request = {};
  while (if_indextoname(interface, request.ifr_name) != nullptr) {
    if (ioctl(fd, SIOCGIFHWADDR, &request) == 0) {
      if (request.ifr_hwaddr.sa_family != ARPHRD_ETHER)
        return std::vector<uint8_t>{};
      const auto* bytes =
          reinterpret_cast<const uint8_t*>(request.ifr_hwaddr.sa_data);
      return std::vector<uint8_t>(bytes, bytes + kAddressBytes);
    }
    if (errno != ENODEV) break;
  }
  return std::nullopt;
}

}  // namespace

bool LinkWatch::ReadAll(std::vector<Change>* changes) {
  const UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return false;
  const std::unique_ptr<struct if_nameindex, decltype(&if_freenameindex)> all(
      if_nameindex(), &if_freenameindex);
  if (all == nullptr) return false;
  decltype(addresses_) there;
  for (const struct if_nameindex* i = all.get(); i->if_index != 0; ++i) {
    if (auto address = AskAddress(fd.get(), i->if_index)) {
      there.emplace(i->if_index, *std::move(address));
    }
  }
  std::vector<Change> fresh;
  for (const auto& [interface, address] : addresses_) {
    const auto found = there.find(interface);
    if (found == there.end()) {
      fresh.push_back({interface, InterfaceChange::kGone});
    } else if (IsAnother(address, found->second)) {
      fresh.push_back({interface, InterfaceChange::kAddress});
    }
  }
  changes->insert(changes->end(), fresh.begin(), fresh.end());
  addresses_ = std::move(there);
  return true;
}

void LinkWatch::Read(std::span<const uint8_t> bytes,
                     std::vector<Change>* changes) {
  size_t left = bytes.size();
  const auto* header = reinterpret_cast<const nlmsghdr*>(bytes.data());
  for (; NLMSG_OK(header, left); header = NLMSG_NEXT(header, left)) {
    const bool gone = header->nlmsg_type == RTM_DELLINK;
    if ((!gone && header->nlmsg_type != RTM_NEWLINK) ||
        header->nlmsg_len < NLMSG_LENGTH(sizeof(ifinfomsg))) {
      continue;
    }
    const auto* link = static_cast<const ifinfomsg*>(NLMSG_DATA(header));
    // Bridges send these messages for ports that leave them.
    if (link->ifi_family != AF_UNSPEC) continue;
    const auto interface = static_cast<uint32_t>(link->ifi_index);
    if (gone) {
      changes->push_back({interface, InterfaceChange::kGone});
      addresses_.erase(interface);
      continue;
    }
    std::vector<uint8_t> address = AddressOf(*header);
    std::vector<uint8_t>& known = addresses_[interface];
    if (IsAnother(known, address)) {
      changes->push_back({interface, InterfaceChange::kAddress});
    }
    if (!address.empty()) known = std::move(address);
  }
}

}  // namespace rxe_user
