// The backend of plain system calls, for where io_uring is forbidden.
#ifndef RXE_USER_PORTS_SOCKET_PORT_H_
#define RXE_USER_PORTS_SOCKET_PORT_H_

#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "rxe_user/ports/udp_port.h"

namespace rxe_user {

class SocketPort final : public UdpPort {
 public:
  static absl::StatusOr<std::unique_ptr<Port>> Create();
  const char* name() const override { return "socket"; }

 private:
  void ReceiveSeveral(int fd, int index,
                      std::span<Operation> operations) override;
  int RegisterReceiver(int) override { return -1; }
};

}  // namespace rxe_user

#endif  // RXE_USER_PORTS_SOCKET_PORT_H_
