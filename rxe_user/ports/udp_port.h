// The port of UDP sockets and plain system calls: recvmsg(2), recvmmsg(2),
// sendmmsg(2).
#ifndef RXE_USER_PORTS_UDP_PORT_H_
#define RXE_USER_PORTS_UDP_PORT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "rxe_user/ports/socket_port.h"
#include "rxe_user/ports/udp_receiver.h"

namespace rxe_user {

class UdpPort final : public SocketPort<UdpReceiver> {
 public:
  static absl::StatusOr<std::unique_ptr<Port>> Create();
};

}  // namespace rxe_user

#endif  // RXE_USER_PORTS_UDP_PORT_H_
