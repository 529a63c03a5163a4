#include "rxe_user/ports/udp_port.h"

namespace rxe_user {

absl::StatusOr<std::unique_ptr<Port>> UdpPort::Create() {
  auto port = std::make_unique<UdpPort>();
  if (absl::Status status = port->Open(); !status.ok()) return status;
  return port;
}

}  // namespace rxe_user
