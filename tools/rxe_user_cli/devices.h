// `rxe-user devices`: what programs will see.
#ifndef TOOLS_RXE_USER_CLI_DEVICES_H_
#define TOOLS_RXE_USER_CLI_DEVICES_H_

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rxe_user/devices/device.h"

namespace rxe_user_cli {

// Why UDP port 4791 of an address cannot be had; empty if it can.
using PortTrouble = std::function<std::string(const rxe_user::LocalAddress&)>;

using Devices = std::vector<std::shared_ptr<const rxe_user::Device>>;

using Others = std::vector<rxe_user::UnusedInterface>;

// A table for people: a line per device, one below it per GID, and then one per
// interface that is no device. `alone`: why processes cannot share the port of
// an address; empty if they can.
std::string DevicesAsText(const Devices& devices, const Others& others,
                          const PortTrouble& trouble, const std::string& alone);

// For programs: {"devices": [{"name", "netdev", "ifindex", "state" (up, down),
// "mtu", "roce_mtu", "loopback", "speed_mbps" (absent: not known), "mac",
// "guid", "gids": [{"index", "type", "gid", "address", "scope" (of link-local
// ones), "port_available", "port_trouble" (if not available)}]}],
// "no_devices": [{"netdev", "reason"}],
// "port_not_shared" (if it cannot be: why)}.
std::string DevicesAsJson(const Devices& devices, const Others& others,
                          const PortTrouble& trouble, const std::string& alone);

// Lists the devices of this network namespace; the exit status.
int RunDevices(bool json, std::FILE* out, std::FILE* err);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_DEVICES_H_
