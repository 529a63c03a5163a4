// Which port of UDP sockets lanes have (RXE_USER_IO).
#ifndef RXE_USER_PORTS_SOCKET_IO_H_
#define RXE_USER_PORTS_SOCKET_IO_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "rxe_user/ports/port.h"

namespace rxe_user {

// UringPort where the system allows it, unless RXE_USER_IO is "sockets"; else
// UdpPort. With "auto", the ring is used for bulk only (RingUse): it is slower
// for small datagrams (docs/performance.md). Errors: UdpPort's. Thread: any.
absl::StatusOr<std::unique_ptr<Port>> CreateSocketPort();

// What CreateSocketPort chooses, for reports.
struct SocketIo {
  // "sockets", "io_uring", "io_uring for bulk, sockets for the rest" or
  // "io_uring with a kernel thread"
  std::string uses;
  std::string why;
};
// Tries io_uring unless RXE_USER_IO is "sockets". Thread: any.
SocketIo FindSocketIo();

}  // namespace rxe_user

#endif  // RXE_USER_PORTS_SOCKET_IO_H_
