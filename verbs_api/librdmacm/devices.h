// The verbs devices that ids are bound to. They are opened at first use and
// stay open while their interface exists or an id uses them, because
// applications keep the pointer id->verbs.
#ifndef VERBS_API_LIBRDMACM_DEVICES_H_
#define VERBS_API_LIBRDMACM_DEVICES_H_

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "rxe_user/base/local_address.h"

namespace librdmacm {

inline constexpr uint8_t kPort = 1;  // each device has only this port

// A local address on its device.
struct DeviceAddress {
  ibv_context* verbs = nullptr;
  uint8_t gid_index = 0;
  uint32_t interface = 0;  // index of its network interface
  // Keeps `verbs` open.
  std::shared_ptr<const void> share;
};

// No function here takes a lock of an id or a channel.

// Finds the device that has `local` as a GID; a link-local address only on its
// own interface. Takes microseconds for an address that was found before,
// otherwise the time to read all interfaces.
std::optional<DeviceAddress> FindDevice(const rxe_user::LocalAddress& local);

// Closes the devices of an interface when their last share is given back.
// Devices that rdma_get_devices(3) returned stay open: "Returned devices remain
// opened while the librdmacm is loaded."
void OnInterfaceGone(uint32_t interface);
// Gives back the share of a destroyed id. The last share closes a device whose
// interface is gone.
void ReleaseDevice(std::shared_ptr<const void> share);

// The protection domain for ids whose application gave none, one per device.
// Null, with errno, on failure.
ibv_pd* DefaultPd(ibv_context* verbs);
// The same for XRC domains.
ibv_xrcd* DefaultXrcd(ibv_context* verbs);

}  // namespace librdmacm

#endif  // VERBS_API_LIBRDMACM_DEVICES_H_
