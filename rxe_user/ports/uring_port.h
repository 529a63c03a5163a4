// The io_uring backend: one ring per lane, used by whichever thread holds the
// lane's lock (hence no SINGLE_ISSUER). Operations do not block, so the
// submitting thread executes them inline and finds their results when
// io_uring_enter returns; nothing is ever left in flight.
//
// The ring saves system calls where several datagrams are asked for; for one a
// plain call costs 15 % less, and is made. Sends are sendmmsg(2)'s: the ring
// takes as long for each as a call of its own.
#ifndef RXE_USER_PORTS_URING_PORT_H_
#define RXE_USER_PORTS_URING_PORT_H_

#include <liburing.h>

#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "rxe_user/ports/udp_port.h"

namespace rxe_user {

class UringPort final : public UdpPort {
 public:
  // Fails where io_uring is refused (absent, seccomp, sysctl).
  static absl::StatusOr<std::unique_ptr<Port>> Create();
  ~UringPort() override;
  const char* name() const override { return "uring"; }
  void AbandonInChild() override;

 private:
  absl::Status OpenRing();
  void ReceiveSeveral(int fd, int index,
                      std::span<Operation> operations) override;
  int RegisterReceiver(int fd) override;

  io_uring ring_{};
  bool open_ = false;
  // The ring refused a submission; plain calls do from then on.
  bool broken_ = false;
  int files_ = 0;          // registered
  int file_capacity_ = 0;  // 0 = the kernel keeps no sparse table
};

}  // namespace rxe_user

#endif  // RXE_USER_PORTS_URING_PORT_H_
