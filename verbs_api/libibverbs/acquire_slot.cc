// Functions of libibverbs that librdmacm uses (interface.h): the slot of the
// port, and the process's capture and recording.
#include "rxe_user/devices/device.h"
#include "rxe_user/observe/process_files.h"
#include "verbs_api/libibverbs/abi.h"
#include "verbs_api/libibverbs/interface.h"

namespace verbs_api {

VERBS_EXPORT void rxe_user_acquire_slot(
    absl::StatusOr<std::unique_ptr<rxe_user::Slot>>* slot) {
  // The slot needs the table of public addresses, which is read when devices
  // are listed. A program that only listens may not have listed any.
  rxe_user::ReadPublicAddresses();
  *slot = rxe_user::Slot::Acquire();
}

VERBS_EXPORT void rxe_user_guard_files() { rxe_user::GuardProcessFiles(); }

VERBS_EXPORT transport::PacketObserver* rxe_user_packet_observer() {
  return rxe_user::ProcessObserver();
}

}  // namespace verbs_api
