// The verbs devices that ids are bound to. They are opened at the first use and
// stay open: applications keep what id->verbs points to.
#ifndef VERBS_API_LIBRDMACM_DEVICES_H_
#define VERBS_API_LIBRDMACM_DEVICES_H_

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "rxe_user/base/local_address.h"

namespace librdmacm {

inline constexpr uint8_t kPort = 1;  // each device has this one

// A local address on its device.
struct DeviceAddress {
  ibv_context* verbs = nullptr;
  uint8_t gid_index = 0;
  uint32_t interface = 0;  // index of its network interface
};

// Every device that there is now, opened. Empty, with errno, if there is none.
std::vector<ibv_context*> OpenDevices();

// The device that has `local` as a GID, link-local ones on their interface.
std::optional<DeviceAddress> FindDevice(const rxe_user::LocalAddress& local);

// The protection domain of ids whose application has given none. One for a
// device. Null, with errno, if it cannot be had.
ibv_pd* DefaultPd(ibv_context* verbs);
// The same for XRC domains.
ibv_xrcd* DefaultXrcd(ibv_context* verbs);

}  // namespace librdmacm

#endif  // VERBS_API_LIBRDMACM_DEVICES_H_
