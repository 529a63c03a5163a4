#include "rxe_user/ports/socket_io.h"

#include "rxe_user/base/settings.h"
#include "rxe_user/ports/udp_port.h"
#include "rxe_user/ports/uring_port.h"

namespace rxe_user {

absl::StatusOr<std::unique_ptr<Port>> CreateSocketPort() {
  if (UseUring()) {
    absl::StatusOr<std::unique_ptr<Port>> port = UringPort::Create();
    if (port.ok()) return port;
  }
  return UdpPort::Create();
}

SocketIo FindSocketIo() {
  if (!UseUring()) return {"sockets", "default"};
  const absl::Status available = UringPort::Available();
  if (available.ok()) return {"io_uring", "RXE_USER_IO=uring"};
  return {"sockets", std::string(available.message())};
}

}  // namespace rxe_user
