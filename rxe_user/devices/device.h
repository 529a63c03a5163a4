// Devices: every interface that is up and has an address is one, but for ports
// of bridges and bonds (docs/design/view.md, "Devices").
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

// An immutable snapshot of a device. Thread: free to share.
struct Device {
  std::string name;    // rxeu0, or as configured
  std::string netdev;  // eth0
  uint32_t ifindex = 0;
  uint32_t mtu = 0;       // of the interface, bytes
  uint32_t roce_mtu = 0;  // largest RoCE MTU that fits, 256..4096
  bool up = false;        // link is up
  bool loopback = false;
  uint64_t speed_mbps = 0;  // 0 = not known
  std::array<uint8_t, 6> mac{};
  uint64_t guid = 0;               // host order; unique and never 0
  std::vector<LocalAddress> gids;  // index = GID index
  // Which of them the interface has not: it has another one in its place.
  std::vector<PublicAddress> public_addresses;

  // What applications are told, in Mbit/s. Some choose by it between copying
  // and READ (UCX). On loopback nothing but the processor is in the way: it is
  // 100 Gbit/s, and others that do not say theirs are 10.
  uint64_t NominalSpeed() const {
    if (speed_mbps != 0) return speed_mbps;
    return loopback ? 100'000 : 10'000;
  }
};

// What can change about a device while it is open.
enum class LinkChange : uint8_t {
  kUp,
  kDown,       // no carrier, set down, or gone
  kAddresses,  // an address came or went
  kMtu,
  kUnseen,  // any of these, or nothing, before somebody watched
};

// The devices of this network namespace as configured by the environment
// (RXE_USER_DEVICES): real interfaces first, loopback last. A fresh reading at
// each call. Problems of configuration go to stderr, one clear line each, and
// so do settings that there are not. Fails when the interfaces cannot be read
// (errno_status.h).
using Devices = std::vector<std::shared_ptr<const Device>>;
absl::StatusOr<Devices> ListDevices();

// `before` as its interface is now, under the name and the GUID that it had;
// null if the interface is gone or cannot be a device any more. Costs what that
// interface has, however many there are. Fails as ListDevices.
absl::StatusOr<std::shared_ptr<const Device>> ReadDevice(const Device& before);

// An interface that ListDevices has left out, and why: "it is down".
struct NoDevice {
  std::string netdev;
  std::string reason;
};
absl::StatusOr<std::vector<NoDevice>> ListOthers(const Devices& devices);

// Makes public addresses known in this library (base/public_addresses.h), if
// any are configured, where nobody has listed devices yet. Cheap afterwards.
void ReadPublicAddresses();

// Why ListDevices has found none: "no device: ...".
std::string NoDeviceText();

}  // namespace rxe_user

#endif  // RXE_USER_DEVICES_DEVICE_H_
