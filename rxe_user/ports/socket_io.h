// Which port of UDP sockets lanes have (RXE_USER_IO).
#ifndef RXE_USER_PORTS_SOCKET_IO_H_
#define RXE_USER_PORTS_SOCKET_IO_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "rxe_user/ports/port.h"

namespace rxe_user {

// UringPort where RXE_USER_IO=uring or uring-sqpoll asks for it and the system
// allows it; else UdpPort. RXE_USER_IO=auto is UdpPort: a ring is slower in
// most of what was measured (docs/performance.md). Errors: UdpPort's. Thread:
// any.
absl::StatusOr<std::unique_ptr<Port>> CreateSocketPort();

// What CreateSocketPort chooses, for reports.
struct SocketIo {
  // "sockets", "io_uring" or "io_uring with a kernel thread"
  std::string uses;
  std::string why;
};
// Tries io_uring if it is asked for. Thread: any.
SocketIo FindSocketIo();

}  // namespace rxe_user

#endif  // RXE_USER_PORTS_SOCKET_IO_H_
