#include "rxe_user/ports/port.h"

#include <stdlib.h>

#include <string>

#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/warn_once.h"
#include "rxe_user/ports/socket_port.h"
#include "rxe_user/ports/uring_port.h"

namespace rxe_user {

absl::StatusOr<std::unique_ptr<Port>> MakePort() {
  const char* value = ::getenv("RXE_USER_IO");
  const std::string wanted = value == nullptr ? "" : value;
  if (wanted == "socket") return SocketPort::Create();
  if (!wanted.empty() && wanted != "uring") {
    WarnOnce("RXE_USER_IO is '" + wanted +
             "', neither 'uring' nor 'socket': ignored");
  }
  absl::StatusOr<std::unique_ptr<Port>> port = UringPort::Create();
  if (port.ok() || IsOutOfFiles(port.status())) return port;
  if (wanted == "uring") {
    WarnOnce("RXE_USER_IO=uring: io_uring is refused here (" +
             std::string(port.status().message()) +
             "); plain sockets are used");
  }
  return SocketPort::Create();
}

}  // namespace rxe_user
