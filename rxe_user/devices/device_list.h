// The part of device.h without I/O: builds devices from interfaces and
// configuration.
#ifndef RXE_USER_DEVICES_DEVICE_LIST_H_
#define RXE_USER_DEVICES_DEVICE_LIST_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rxe_user/devices/device.h"
#include "rxe_user/devices/netdev.h"

namespace rxe_user {

// The largest RoCE MTU (256..4096) whose packets fit an interface's MTU with
// the largest headers; 0 if not even 256 does.
uint32_t RoceMtu(uint32_t interface_mtu);

// The configuration in RXE_USER_DEVICES.
struct DeviceConfig {
  // Entries `netdev` or `name=netdev`, separated by commas or newlines. Empty:
  // every interface that is up and has an address. Each option follows a '/':
  // `public=ADDRESS` replaces the first address of its family that is not
  // link-local; `mlx5` sets Device::mlx5.
  std::string entries;
  // The file that contains the entries, if they are not in the variable. Errors
  // then name the line but do not quote it.
  std::string file;
  // Sets Device::mlx5 of every device (RXE_USER_MLX5).
  bool all_mlx5 = false;
};

// Reads the value of RXE_USER_DEVICES. A value that begins with '/' names a
// regular file. On failure appends the reason to `*problems`. Does not block.
DeviceConfig ReadDeviceConfig(const char* value,
                              std::vector<std::string>* problems);

// Gives the interfaces of one process their names rxeu0, rxeu1, ... As with a
// kernel device, an interface keeps its name when others appear and disappear,
// and no other interface gets that name.
class DeviceNames {
 public:
  // Returns the name of `interface`. If it has none, or `taken` contains it,
  // gives it a new one, with the next number.
  const std::string& Of(const Interface& interface,
                        const std::set<std::string>& taken);

 private:
  // By interface index and name.
  std::map<std::pair<uint32_t, std::string>, std::string> names_;
  int next_ = 0;
};

// The reason why the interface cannot be a device: "it is down". Empty if it
// can.
std::string WhyUnusable(const Interface& interface);

// The reason why the interface is no device unless RXE_USER_DEVICES names it. A
// port of a bridge or bond does not have the addresses, and it appears and
// disappears with containers, which would change other devices' names. Empty if
// the interface is a device.
std::string WhyLeftOut(const Interface& interface);

// `host_identity` identifies this host and network namespace. It is hashed into
// the GUIDs of interfaces without a unique MAC address. Appends errors in
// `config` to `*problems`, one line each.
Devices BuildDevices(const std::vector<Interface>& interfaces,
                     const DeviceConfig& config,
                     const std::string& host_identity, DeviceNames* names,
                     std::vector<std::string>* problems);

}  // namespace rxe_user

#endif  // RXE_USER_DEVICES_DEVICE_LIST_H_
