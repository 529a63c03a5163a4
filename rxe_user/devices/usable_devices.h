// The devices that programs see, without addresses whose port is taken.
#ifndef RXE_USER_DEVICES_USABLE_DEVICES_H_
#define RXE_USER_DEVICES_USABLE_DEVICES_H_

#include "absl/status/statusor.h"
#include "rxe_user/devices/device.h"

namespace rxe_user {

// Returns `devices` without the addresses whose UDP port 4791 is held by a
// foreign socket. An empty GID (the unspecified address) takes the place of
// each, so that the other GIDs keep their indexes. Devices without a usable
// address are left out. Prints what is missing on stderr, one clear line for
// each holder. Fails if that cannot be determined (errno_status.h).
absl::StatusOr<Devices> KeepUsable(const Devices& devices);

}  // namespace rxe_user

#endif  // RXE_USER_DEVICES_USABLE_DEVICES_H_
