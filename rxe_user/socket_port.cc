#include "rxe_user/socket_port.h"

namespace rxe_user {

absl::StatusOr<std::unique_ptr<Port>> SocketPort::Create() {
  auto port = std::make_unique<SocketPort>();
  if (absl::Status status = port->Open(); !status.ok()) return status;
  return port;
}

void SocketPort::ReceiveSeveral(std::span<Operation> operations, int) {
  ReceiveByCall(operations);
}

}  // namespace rxe_user
