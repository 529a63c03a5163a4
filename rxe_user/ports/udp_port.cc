#include "rxe_user/ports/udp_port.h"

namespace rxe_user {

absl::StatusOr<std::unique_ptr<Port>> UdpPort::Create() {
  auto port = std::make_unique<UdpPort>();
  if (absl::Status status = port->receiver_.Open(); !status.ok()) {
    return status;
  }
  if (absl::Status status = port->transmitter_.Open(); !status.ok()) {
    return status;
  }
  return port;
}

transport::PacketObserver* UdpPort::Watch(transport::PacketObserver* observer,
                                          Recorder*) {
  if (observer == nullptr || !observer->WantsKernelTime()) return observer;
  receiver_.NoteKernelTimes();
  transmitter_.MarkBursts();
  timed_ = std::make_unique<Timed>(receiver_, *observer);
  return timed_.get();
}

void UdpPort::Timed::OnPacket(const transport::ObservedPacket& packet) {
  if (packet.direction != transport::Direction::kReceived) {
    observer_.OnPacket(packet);
    return;
  }
  transport::ObservedPacket timed = packet;
  timed.kernel_time = receiver_.KernelTimeOf(packet.bytes);
  observer_.OnPacket(timed);
}

void UdpPort::AbandonInChild() {
  receiver_.AbandonInChild();
  transmitter_.AbandonInChild();
}

}  // namespace rxe_user
