// The pure half of device.h: interfaces and configuration in, devices out.
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
// the largest headers they may carry; 0 when not even 256 does.
uint32_t RoceMtu(uint32_t interface_mtu);

// What RXE_USER_DEVICES asks for.
struct DeviceConfig {
  // Entries `netdev` or `name=netdev`, separated by commas or newlines; empty
  // for every interface that is up and has an address. Options follow, each
  // after a '/': `public=ADDRESS`, in place of the first address of its family
  // that is not link-local.
  std::string entries;
  // Where they come from, if not from the variable itself. What is wrong with
  // them is then told by the line, without its text.
  std::string file;
};

// The value of RXE_USER_DEVICES; one that begins with '/' names a regular file.
// Appends to `*problems` why that cannot be read. Does not block.
DeviceConfig ReadDeviceConfig(const char* value,
                              std::vector<std::string>* problems);

// The names rxeuN of one process. An interface keeps its own, as a device of
// the kernel does, whatever others come and go; nobody else ever gets it.
class DeviceNames {
 public:
  // That of `interface`: new, with the next number, where it has none yet or
  // `taken` has it.
  const std::string& Of(const Interface& interface,
                        const std::set<std::string>& taken);

 private:
  // By index and name of the interface.
  std::map<std::pair<uint32_t, std::string>, std::string> names_;
  int next_ = 0;
};

// Why the interface cannot be a device: "it is down"; empty if it can.
std::string WhyUnusable(const Interface& interface);

// Why it is none unless RXE_USER_DEVICES names it: a port of a bridge or a bond
// is not what has the addresses, and comes and goes with containers, which
// would change the names of others. Empty if it is one.
std::string WhyLeftOut(const Interface& interface);

// `host_identity` tells this host and network namespace from all others; it
// goes into the GUIDs of interfaces whose MAC address does not. What is wrong
// with `config` is appended to `*problems`, one line each.
Devices BuildDevices(const std::vector<Interface>& interfaces,
                     const DeviceConfig& config,
                     const std::string& host_identity, DeviceNames* names,
                     std::vector<std::string>* problems);

}  // namespace rxe_user

#endif  // RXE_USER_DEVICES_DEVICE_LIST_H_
