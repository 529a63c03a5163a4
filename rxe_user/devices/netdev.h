// The network interfaces of this network namespace, and the MAC addresses of
// their neighbors.
#ifndef RXE_USER_DEVICES_NETDEV_H_
#define RXE_USER_DEVICES_NETDEV_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rxe_user/base/local_address.h"

namespace rxe_user {

struct Interface {
  std::string name;
  uint32_t index = 0;
  uint32_t mtu = 0;      // bytes
  bool up = false;       // administratively (IFF_UP)
  bool running = false;  // and has carrier (IFF_RUNNING)
  bool loopback = false;
  std::array<uint8_t, 6> mac{};  // zero if it has none
  uint64_t speed_mbps = 0;       // 0: unknown
  std::string kind;              // "vlan", "ipvlan"; empty if physical
  // The interface of which this one is a port; empty if none.
  std::string master, master_kind;      // "docker0", "bridge"
  std::vector<LocalAddress> addresses;  // IPv4, IPv6 global, IPv6 link-local
};

// All interfaces, in order of index, whether up or not.
absl::StatusOr<std::vector<Interface>> ReadInterfaces();

// The interface with this index, without its master. Absent if there is none.
// The cost does not depend on the number of interfaces.
absl::StatusOr<std::optional<Interface>> ReadInterface(uint32_t index);

// The MAC address of `address` in the kernel's neighbor table (ARP, NDP) of the
// interface. Absent if there is none.
std::optional<std::array<uint8_t, 6>> NeighborMac(
    uint32_t ifindex, const wire::IpAddress& address);

}  // namespace rxe_user

#endif  // RXE_USER_DEVICES_NETDEV_H_
