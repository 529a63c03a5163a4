// Devices: each interface that is up and has an address, except ports of
// bridges and bonds (docs/design/view.md, "Devices").
#ifndef RXE_USER_DEVICES_DEVICE_H_
#define RXE_USER_DEVICES_DEVICE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rxe_user/base/local_address.h"
#include "rxe_user/base/public_addresses.h"

namespace rxe_user {

// An immutable snapshot of a device. May be shared by threads.
struct Device {
  std::string name;    // rxeu0, or as configured
  std::string netdev;  // eth0
  uint32_t ifindex = 0;
  uint32_t mtu = 0;       // of the interface, bytes
  uint32_t roce_mtu = 0;  // largest RoCE MTU that fits, 256..4096
  bool up = false;        // link is up
  bool loopback = false;
  uint64_t speed_mbps = 0;  // 0: unknown
  std::array<uint8_t, 6> mac{};
  uint64_t guid = 0;               // host order; unique and never 0
  std::vector<LocalAddress> gids;  // index = GID index
  // The GIDs that are no interface's addresses, and the interface's addresses
  // for them.
  std::vector<PublicAddress> public_addresses;
  // Programs see an mlx5 device (docs/mlx5dv.md).
  bool mlx5 = false;

  // The speed that applications see, in Mbit/s. Some (UCX) choose by it between
  // copying and READ. On loopback only the processor limits it: 100 Gbit/s.
  // Other interfaces of unknown speed count as 10.
  uint64_t NominalSpeed() const {
    if (speed_mbps != 0) return speed_mbps;
    return loopback ? 100'000 : 10'000;
  }
};

// Changes of an open device.
enum class LinkChange : uint8_t {
  kUp,
  kDown,       // no carrier, set down, or gone
  kAddresses,  // an address appeared or disappeared
  kMtu,
  kUnknown,  // any change, or none, before the watch began
};

// The devices of this network namespace, as configured by the environment
// (RXE_USER_DEVICES): real interfaces first, loopback last. Reads the
// interfaces at each call. Prints configuration problems and unknown settings
// on stderr, one clear line each. Fails when the interfaces cannot be read
// (errno_status.h).
using Devices = std::vector<std::shared_ptr<const Device>>;
// Thread: one of the program's, as for getenv(3).
absl::StatusOr<Devices> ListDevices();

// As ListDevices, with the configuration that its last call read. For the
// library's own threads, which cannot read the environment while the program
// may change it.
absl::StatusOr<Devices> ListDevicesAgain();

// The current state of `before`, with its old name and GUID. Null if the
// interface is gone or can no longer be a device. The cost does not depend on
// the number of interfaces. Fails as ListDevices does.
absl::StatusOr<std::shared_ptr<const Device>> ReadDevice(const Device& before);

// An interface that ListDevices left out, and the reason: "it is down".
struct UnusedInterface {
  std::string netdev;
  std::string reason;
};
absl::StatusOr<std::vector<UnusedInterface>> ListUnusedInterfaces(
    const Devices& devices);

// Registers configured public addresses in this library
// (base/public_addresses.h), unless devices were listed before. Cheap after the
// first call.
void ReadPublicAddresses();

// The reason why ListDevices found no device: "no device: ...".
std::string NoDeviceText();

}  // namespace rxe_user

#endif  // RXE_USER_DEVICES_DEVICE_H_
