#include "rxe_user/cm/link_watch.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "rxe_user/base/unique_fd.h"

namespace rxe_user {
namespace {

// Of Ethernet, which is what ioctl tells of.
constexpr size_t kAddressBytes = 6;

// Empty if there is none.
std::vector<uint8_t> AddressOf(const nlmsghdr& header) {
  const auto* link = static_cast<const ifinfomsg*>(NLMSG_DATA(&header));
  int length = static_cast<int>(IFLA_PAYLOAD(&header));
  for (const rtattr* a = IFLA_RTA(link); RTA_OK(a, length);
       a = RTA_NEXT(a, length)) {
    if (a->rta_type != IFLA_ADDRESS) continue;
    const auto* bytes = static_cast<const uint8_t*>(RTA_DATA(a));
    return {bytes, bytes + RTA_PAYLOAD(a)};
  }
  return {};
}

}  // namespace

bool LinkWatch::ReadAll(std::vector<News>* news) {
  const UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return false;
  const std::unique_ptr<struct if_nameindex, decltype(&if_freenameindex)> all(
      if_nameindex(), &if_freenameindex);
  if (all == nullptr) return false;
  decltype(addresses_) there;
  for (const struct if_nameindex* i = all.get(); i->if_index != 0; ++i) {
    ifreq request = {};
    std::strncpy(request.ifr_name, i->if_name, sizeof(request.ifr_name) - 1);
    if (ioctl(fd.get(), SIOCGIFHWADDR, &request) != 0) continue;
    const auto* bytes =
        reinterpret_cast<const uint8_t*>(request.ifr_hwaddr.sa_data);
    there[i->if_index].assign(bytes, bytes + kAddressBytes);
  }
  for (const auto& [interface, address] : addresses_) {
    const auto found = there.find(interface);
    if (found == there.end()) {
      news->push_back({interface, InterfaceChange::kGone});
    } else if (found->second != address) {
      news->push_back({interface, InterfaceChange::kAddress});
    }
  }
  addresses_ = std::move(there);
  return true;
}

void LinkWatch::Read(std::span<const uint8_t> bytes, std::vector<News>* news) {
  size_t left = bytes.size();
  const auto* header = reinterpret_cast<const nlmsghdr*>(bytes.data());
  for (; NLMSG_OK(header, left); header = NLMSG_NEXT(header, left)) {
    const bool gone = header->nlmsg_type == RTM_DELLINK;
    if ((!gone && header->nlmsg_type != RTM_NEWLINK) ||
        header->nlmsg_len < NLMSG_LENGTH(sizeof(ifinfomsg))) {
      continue;
    }
    const auto* link = static_cast<const ifinfomsg*>(NLMSG_DATA(header));
    // Bridges say so of ports that leave them.
    if (link->ifi_family != AF_UNSPEC) continue;
    const auto interface = static_cast<uint32_t>(link->ifi_index);
    if (gone) {
      addresses_.erase(interface);
      news->push_back({interface, InterfaceChange::kGone});
      continue;
    }
    std::vector<uint8_t> address = AddressOf(*header);
    if (address.size() != kAddressBytes) continue;
    const auto [known, fresh] = addresses_.try_emplace(interface, address);
    if (fresh || known->second == address) continue;
    known->second = std::move(address);
    news->push_back({interface, InterfaceChange::kAddress});
  }
}

}  // namespace rxe_user
