#include "rxe_user/ports/uring_port.h"

#include <cerrno>

namespace rxe_user {

absl::StatusOr<std::unique_ptr<Port>> UringPort::Create(
    Uring::Requests requests, RingUse use) {
  auto port = std::make_unique<UringPort>();
  if (absl::Status status = port->Open(requests, use); !status.ok())
    return status;
  port->transmitter_.SendThrough(port.get());
  return port;
}

absl::Status UringPort::Available(Uring::Requests requests) {
  return Uring().Open(requests);
}

// Messages of one socket are linked, so that none is sent if one before it
// fails.
void UringPort::Send(std::span<Message> messages) {
  Uring& ring = receiver_.ring();
  const size_t count = messages.size();
  // Results of failed sends that follow a datagram's stay until the next
  // Receive.
  if (!ring.HasRoomFor(count)) return;
  for (size_t i = 0; i < count; ++i) {
    const bool linked = i + 1 < count && messages[i + 1].fd == messages[i].fd;
    ring.PrepareSend(messages[i].fd, messages[i].message, linked,
                     UringReceiver::kSendTags + i);
  }
  receiver_.PrepareReceive();
  const size_t waiting = ring.results();
  ++counters_.tx_calls;
  const size_t taken = ring.Submit();
  for (size_t i = 0; i < count; ++i) {
    messages[i].error = i < taken ? 0 : Message::kNotTried;
  }
  for (size_t i = waiting; i < ring.results(); ++i) {
    const Uring::Result result = ring.Peek(i);
    if (result.tag < UringReceiver::kSendTags) continue;
    const size_t failed = result.tag - UringReceiver::kSendTags;
    messages[failed].error =
        result.error == ECANCELED ? Message::kNotTried : result.error;
    for (size_t j = failed + 1;
         j < count && messages[j].fd == messages[failed].fd; ++j) {
      messages[j].error = Message::kNotTried;
    }
  }
  receiver_.DropEmptyResults();
}

}  // namespace rxe_user
