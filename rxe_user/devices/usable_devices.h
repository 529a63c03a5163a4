// The devices as programs are shown them: what something foreign holds is left
// out.
#ifndef RXE_USER_DEVICES_USABLE_DEVICES_H_
#define RXE_USER_DEVICES_USABLE_DEVICES_H_

#include "absl/status/statusor.h"
#include "rxe_user/devices/device.h"

namespace rxe_user {

// `devices` with an empty GID (the unspecified address) in place of each
// address whose UDP port 4791 something foreign holds, so that the others keep
// their indexes; without the devices that have no usable address left. What is
// missing goes to stderr, one clear line for each holder. Fails when it cannot
// be told (errno_status.h).
absl::StatusOr<Devices> KeepUsable(const Devices& devices);

}  // namespace rxe_user

#endif  // RXE_USER_DEVICES_USABLE_DEVICES_H_
