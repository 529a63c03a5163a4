#include "rxe_user/devices/device.h"
#include "verbs_api/libibverbs/abi.h"
#include "verbs_api/libibverbs/interface.h"

namespace verbs_api {

VERBS_EXPORT void rxe_user_acquire_slot(
    absl::StatusOr<std::unique_ptr<rxe_user::Slot>>* slot) {
  // The slot translates by what this library knows, and a program that only
  // listens may not have listed devices.
  rxe_user::ReadPublicAddresses();
  *slot = rxe_user::Slot::Acquire();
}

}  // namespace verbs_api
