#include "rxe_user/socket_port.h"

#include <errno.h>

namespace rxe_user {

absl::StatusOr<std::unique_ptr<Port>> SocketPort::Create() {
  auto port = std::make_unique<SocketPort>();
  if (absl::Status status = port->Open(); !status.ok()) return status;
  return port;
}

void SocketPort::SendMessages(std::span<Operation> operations) {
  SendPlainly(operations);
}

void SocketPort::ReceiveMessages(std::span<Operation> operations) {
  bool empty = false;
  for (Operation& operation : operations) {
    if (empty) {
      operation.result = -EAGAIN;
      continue;
    }
    ReceivePlainly(operation);
    ++counters_.rx_calls;
    empty = operation.result == -EAGAIN;
  }
}

}  // namespace rxe_user
