#include "rxe_user/ports/socket_port.h"

namespace rxe_user {

absl::StatusOr<std::unique_ptr<Port>> SocketPort::Create() {
  auto port = std::make_unique<SocketPort>();
  if (absl::Status status = port->Open(); !status.ok()) return status;
  return port;
}

void SocketPort::ReceiveSeveral(int fd, int /*index*/,
                                std::span<Operation> operations) {
  ReceiveByCall(fd, operations);
}

}  // namespace rxe_user
