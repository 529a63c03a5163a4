// Network interfaces of this network namespace, and their neighbors.
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
  std::array<uint8_t, 6> mac{};  // all zero when it has none
  uint64_t speed_mbps = 0;       // 0 = not known
  std::string kind;              // "vlan", "ipvlan"; empty if physical
  // Of the interface that this one is a port of; empty if it is none.
  std::string master, master_kind;      // "docker0", "bridge"
  std::vector<LocalAddress> addresses;  // IPv4, IPv6 global, IPv6 link-local
};

// All of them, by index, up or not.
absl::StatusOr<std::vector<Interface>> ReadInterfaces();

// The one of this index, without its master; absent if there is none. Costs
// what that one has, however many there are.
absl::StatusOr<std::optional<Interface>> ReadInterface(uint32_t index);

// The MAC address that the kernel's table of neighbors (ARP, NDP) has for
// `address` on the interface; absent when it has none.
std::optional<std::array<uint8_t, 6>> NeighborMac(
    uint32_t ifindex, const wire::IpAddress& address);

}  // namespace rxe_user

#endif  // RXE_USER_DEVICES_NETDEV_H_
