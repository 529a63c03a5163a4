// The devices that programs see, without addresses whose port is taken.
#ifndef RXE_USER_DEVICES_USABLE_DEVICES_H_
#define RXE_USER_DEVICES_USABLE_DEVICES_H_

#include "absl/status/statusor.h"
#include "rxe_user/devices/device.h"

namespace rxe_user {

// Returns `devices`, with each address whose UDP port 4791 a foreign socket
// holds replaced by an empty GID (the unspecified address), so that the other
// GIDs keep their indexes. Devices without a usable address are left out.
// Prints what is missing on stderr, one clear line for each holder. Fails if
// that cannot be determined (errno_status.h).
absl::StatusOr<Devices> KeepUsable(const Devices& devices);

}  // namespace rxe_user

#endif  // RXE_USER_DEVICES_USABLE_DEVICES_H_
