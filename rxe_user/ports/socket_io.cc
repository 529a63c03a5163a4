#include "rxe_user/ports/socket_io.h"

#include "rxe_user/base/settings.h"
#include "rxe_user/ports/udp_port.h"
#include "rxe_user/ports/uring_port.h"

namespace rxe_user {

namespace {

// What the system refuses of what the setting asks for.
absl::Status Available(Io io) {
  return UringPort::Available(io == Io::kUringSqpoll
                                  ? Uring::Requests::kByKernelThread
                                  : Uring::Requests::kByCaller);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Port>> CreateSocketPort() {
  const Io io = IoSetting();
  if (io == Io::kUring || io == Io::kUringSqpoll) {
    absl::StatusOr<std::unique_ptr<Port>> port =
        io == Io::kUring ? UringPort::Create() : UringPort::CreateSqpoll();
    if (port.ok()) return port;
  }
  return UdpPort::Create();
}

SocketIo FindSocketIo() {
  const Io io = IoSetting();
  switch (io) {
    case Io::kAuto:
      return {"sockets", "RXE_USER_IO=auto"};
    case Io::kSockets:
      return {"sockets", "RXE_USER_IO=sockets"};
    case Io::kUring:
    case Io::kUringSqpoll:
      break;
  }
  const absl::Status available = Available(io);
  if (!available.ok()) return {"sockets", std::string(available.message())};
  return io == Io::kUring ? SocketIo{"io_uring", "RXE_USER_IO=uring"}
                          : SocketIo{"io_uring with a kernel thread",
                                     "RXE_USER_IO=uring-sqpoll"};
}

}  // namespace rxe_user
