// The verbs devices that ids are bound to. They are opened at the first use and
// stay open as long as their interface is there or an id has them: applications
// keep what id->verbs points to.
#ifndef VERBS_API_LIBRDMACM_DEVICES_H_
#define VERBS_API_LIBRDMACM_DEVICES_H_

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "rxe_user/base/local_address.h"

namespace librdmacm {

inline constexpr uint8_t kPort = 1;  // each device has this one

// A local address on its device.
struct DeviceAddress {
  ibv_context* verbs = nullptr;
  uint8_t gid_index = 0;
  uint32_t interface = 0;  // index of its network interface
  // `verbs` stays open as long as somebody has one.
  std::shared_ptr<const void> share;
};

// None of these takes a lock of an id or a channel.

// The device that has `local` as a GID, link-local ones on their interface.
// Takes microseconds where the address was looked for before, and the time of
// reading all interfaces otherwise.
std::optional<DeviceAddress> FindDevice(const rxe_user::LocalAddress& local);

// Closes the devices of the interface, each when nobody has a share of it, but
// not those that rdma_get_devices(3) has told of: "Returned devices remain
// opened while the librdmacm is loaded."
void InterfaceHasGone(uint32_t interface);
// Of an id that is no more. With the last share of a device whose interface has
// gone it closes.
void GiveBack(std::shared_ptr<const void> share);

// The protection domain of ids whose application has given none. One for a
// device. Null, with errno, if it cannot be had.
ibv_pd* DefaultPd(ibv_context* verbs);
// The same for XRC domains.
ibv_xrcd* DefaultXrcd(ibv_context* verbs);

}  // namespace librdmacm

#endif  // VERBS_API_LIBRDMACM_DEVICES_H_
