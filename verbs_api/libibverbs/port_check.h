// Whether a device can be shown at all.
#ifndef VERBS_API_LIBIBVERBS_PORT_CHECK_H_
#define VERBS_API_LIBIBVERBS_PORT_CHECK_H_

#include "rxe_user/device.h"

namespace verbs_api {

// False when no address of `device` can have UDP port 4791; then one line on
// stderr has said, once, who holds it and what to do.
bool PortIsUsable(const rxe_user::Device& device);

}  // namespace verbs_api

#endif  // VERBS_API_LIBIBVERBS_PORT_CHECK_H_
