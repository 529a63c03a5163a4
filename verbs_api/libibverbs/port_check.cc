#include "verbs_api/libibverbs/port_check.h"

#include "rxe_user/broker/slot.h"
#include "rxe_user/objects/context.h"

namespace verbs_api {

bool PortIsUsable(const rxe_user::Device& device) {
  absl::Status worst = absl::OkStatus();
  for (const rxe_user::GidEntry& gid : device.gids) {
    absl::Status status = rxe_user::PortAvailable(gid.address, gid.scope_id);
    if (status.ok()) return true;
    if (worst.ok()) worst = std::move(status);
  }
  rxe_user::ReportedErrno(worst);
  return false;
}

}  // namespace verbs_api
