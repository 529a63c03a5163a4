#include "rxe_user/ports/udp_port.h"

namespace rxe_user {

absl::StatusOr<std::unique_ptr<Port>> UdpPort::Create() {
  auto port = std::make_unique<UdpPort>();
  if (absl::Status status = port->receiver_.Open(); !status.ok()) {
    return status;
  }
  if (absl::Status status = port->transmitter_.Open(); !status.ok()) {
    return status;
  }
  return port;
}

void UdpPort::AbandonInChild() {
  receiver_.AbandonInChild();
  transmitter_.AbandonInChild();
}

}  // namespace rxe_user
