// The port of UDP sockets and io_uring(7): one call of io_uring_enter(2)
// executes all sends of a round and receives the datagrams that have arrived. A
// lane has one ring, driven by the thread that holds the lane's lock (uring.h).
// With RingUse::kForBulk, a call sends or receives, and plain calls send and
// receive small datagrams (docs/design/progress.md, "io_uring").
#ifndef RXE_USER_PORTS_URING_PORT_H_
#define RXE_USER_PORTS_URING_PORT_H_

#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rxe_user/ports/socket_port.h"
#include "rxe_user/ports/uring_receiver.h"
#include "wire/address.h"

namespace rxe_user {

class UringPort final : public SocketPort<UringReceiver>,
                        private MessageSender {
 public:
  // Errors: what the system refused (uring.h). UdpPort may work all the same.
  static absl::StatusOr<std::unique_ptr<Port>> Create(
      Uring::Requests requests, RingUse use = RingUse::kAlways);
  // Whether Create finds what it needs. Thread: any.
  static absl::Status Available(Uring::Requests requests);

  void RemoveReceiver(const wire::IpAddress& address) override {
    receiver_.CloseBell();
    SocketPort::RemoveReceiver(address);
  }
  void SetWaitedOn(bool waited_on) override {
    receiver_.SetWaitedOn(waited_on);
  }

 private:
  void OnQueued(size_t bytes) override { receiver_.NoteSize(bytes); }
  bool sends() const override { return receiver_.uses_ring(); }
  void Send(std::span<Message> messages) override;
};

}  // namespace rxe_user

#endif  // RXE_USER_PORTS_URING_PORT_H_
