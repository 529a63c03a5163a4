// `rxe-user devices`: the devices that programs will see.
#ifndef TOOLS_RXE_USER_CLI_DEVICES_H_
#define TOOLS_RXE_USER_CLI_DEVICES_H_

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rxe_user/devices/device.h"
#include "rxe_user/ports/socket_io.h"

namespace rxe_user_cli {

// Why UDP port 4791 of an address is not available; empty if it is.
using PortTrouble = std::function<std::string(const rxe_user::LocalAddress&)>;

using Devices = std::vector<std::shared_ptr<const rxe_user::Device>>;

using Others = std::vector<rxe_user::UnusedInterface>;

// A table for people: one line for each device, one below it for each GID, then
// one for each interface that is not a device. `alone`: why processes cannot
// share the port of an address; empty if they can. `io`: of all devices.
std::string DevicesAsText(const Devices& devices, const Others& others,
                          const PortTrouble& trouble, const std::string& alone,
                          const rxe_user::SocketIo& io);

// For programs: {"devices": [{"name", "netdev", "ifindex", "state" (up, down),
// "mtu", "roce_mtu", "loopback", "speed_mbps" (absent if unknown), "mac",
// "guid", "gids": [{"index", "type", "gid", "address", "scope" (if link-local),
// "port_available", "port_trouble" (if not available)}]}], "no_devices":
// [{"netdev", "reason"}], "port_not_shared" (the reason, if it cannot be
// shared), "io": {"uses" (SocketIo), "why"}}.
std::string DevicesAsJson(const Devices& devices, const Others& others,
                          const PortTrouble& trouble, const std::string& alone,
                          const rxe_user::SocketIo& io);

// Lists the devices of this network namespace. Returns the exit status.
int RunDevices(bool json, std::FILE* out, std::FILE* err);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_DEVICES_H_
