#include "rxe_user/ports/udp_receiver.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace rxe_user {

absl::Status UdpReceiver::Open(std::span<uint8_t> memory) {
  if (memory.empty()) {
    memory_ = MappedMemory::Prefaulted(kMemoryBytes);
    memory = memory_.bytes();
  }
  if (memory.empty()) {
    return absl::ResourceExhaustedError("no memory for packet buffers");
  }
  arrivals_.reserve(kBuffers);
  for (size_t i = 0; i < kBuffers; ++i) {
    Incoming& incoming = incoming_[i];
    incoming.buffer = memory.subspan(i * kDatagramBytes, kDatagramBytes);
    incoming.vector = {incoming.buffer.data(), incoming.buffer.size()};
    Prepare(i);
  }
  return absl::OkStatus();
}

void UdpReceiver::AbandonInChild() {
  sockets_.AbandonInChild();
  memory_.Release();
}

std::span<const transport::GroBatch> UdpReceiver::Receive(bool thorough) {
  arrivals_.clear();
  more_ = false;
  sockets_.ReadUntilData(
      thorough, [this](size_t index) { return ReceiveFrom(sockets_[index]); });
  return arrivals_;
}

bool UdpReceiver::ReceiveFrom(ReceiveSockets::Socket& socket) {
  const int fd = socket.fd.load(std::memory_order_acquire);
  if (fd < 0) return false;
  const size_t asked = socket.ask;
  long received = Call(fd, asked);
  // Most errors are reported once, and datagrams may be queued after them.
  if (received < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
    ++counters_.rx_errors;
    received = Call(fd, asked);
  }
  if (received < 0) {
    socket.ask = 1;
    socket.had_more = false;
    return false;
  }
  const auto got = static_cast<size_t>(received);
  size_t bytes = 0;
  for (size_t i = 0; i < got; ++i) {
    const size_t size = messages_[i].msg_len;
    if (sockets_.Deliver(socket, incoming_[i].buffer.first(size),
                         messages_[i].msg_hdr, incoming_[i].from, &arrivals_)) {
      bytes += size;
    }
    Prepare(i);
  }
  more_ = got == asked;
  ReceiveSockets::ChooseAsk(socket, got, bytes, more_);
  return got != 0;
}

// By syscall(2): these functions of the C library are cancellation points,
// which costs two checks in each call. Threads are not cancelled under the
// lane's lock (adaptive_lock.h).
long UdpReceiver::Call(int fd, size_t asked) {
  ++counters_.rx_calls;
  if (asked > 1) {
    return ::syscall(SYS_recvmmsg, fd, messages_.data(), asked, MSG_DONTWAIT,
                     nullptr);
  }
  const long bytes =
      ::syscall(SYS_recvmsg, fd, &messages_[0].msg_hdr, MSG_DONTWAIT);
  if (bytes < 0) return bytes;
  messages_[0].msg_len = static_cast<unsigned>(bytes);
  return 1;
}

// A receive overwrites the message header, so all of it is set again.
void UdpReceiver::Prepare(size_t index) {
  Incoming& incoming = incoming_[index];
  msghdr& message = messages_[index].msg_hdr;
  message.msg_name = &incoming.from;
  message.msg_namelen = sizeof(incoming.from);
  message.msg_iov = &incoming.vector;
  message.msg_iovlen = 1;
  message.msg_control = incoming.control;
  message.msg_controllen = sizeof(incoming.control);
  message.msg_flags = 0;
}

// Reads the control data of the datagram's buffer only now: they stay there
// until the next receive.
int64_t UdpReceiver::KernelTimeOf(std::span<const uint8_t> bytes) const {
  const auto at = reinterpret_cast<uintptr_t>(bytes.data());
  const auto first = reinterpret_cast<uintptr_t>(incoming_[0].buffer.data());
  const size_t index = (at - first) / kDatagramBytes;
  if (at < first || index >= kBuffers) return 0;
  return KernelTimeIn(incoming_[index].control);
}

}  // namespace rxe_user
