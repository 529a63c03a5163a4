#include "rxe_user/ports/socket_io.h"

#include "rxe_user/base/settings.h"
#include "rxe_user/ports/udp_port.h"
#include "rxe_user/ports/uring_port.h"

namespace rxe_user {
namespace {

Uring::Requests RequestsOf(Io io) {
  return io == Io::kUringSqpoll ? Uring::Requests::kByKernelThread
                                : Uring::Requests::kByCaller;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Port>> CreateSocketPort() {
  const Io io = IoSetting();
  if (io != Io::kSockets) {
    absl::StatusOr<std::unique_ptr<Port>> port = UringPort::Create(
        RequestsOf(io), io == Io::kAuto ? RingUse::kForBulk : RingUse::kAlways);
    if (port.ok()) return port;
  }
  return UdpPort::Create();
}

SocketIo FindSocketIo() {
  const Io io = IoSetting();
  if (io == Io::kSockets) return {"sockets", "RXE_USER_IO=sockets"};
  const absl::Status available = UringPort::Available(RequestsOf(io));
  if (!available.ok()) return {"sockets", std::string(available.message())};
  if (io == Io::kUring) return {"io_uring", "RXE_USER_IO=uring"};
  if (io == Io::kUringSqpoll) {
    return {"io_uring with a kernel thread", "RXE_USER_IO=uring-sqpoll"};
  }
  return {"io_uring for bulk, sockets for the rest", "RXE_USER_IO=auto"};
}

}  // namespace rxe_user
