// The receiving half of the UDP port, by recvmsg(2) and recvmmsg(2). The
// io_uring port uses it for small datagrams.
#ifndef RXE_USER_PORTS_UDP_RECEIVER_H_
#define RXE_USER_PORTS_UDP_RECEIVER_H_

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "rxe_user/ports/mapped_memory.h"
#include "rxe_user/ports/port.h"
#include "rxe_user/ports/receive_sockets.h"
#include "rxe_user/ports/udp_socket.h"

namespace rxe_user {

// Thread: lane locked, except sockets().
class UdpReceiver {
 public:
  explicit UdpReceiver(PortCounters* counters)
      : counters_(*counters), sockets_(counters) {}
  // The size of the buffers.
  static constexpr size_t kMemoryBytes =
      ReceiveSockets::kMaxAsked * kDatagramBytes;

  // Call once, before anything else. `memory`: kMemoryBytes for the buffers,
  // which the caller keeps; empty: memory of its own.
  absl::Status Open(std::span<uint8_t> memory = {});

  ReceiveSockets& sockets() { return sockets_; }
  const ReceiveSockets& sockets() const { return sockets_; }

  // As Port's.
  std::vector<int> Descriptors() const { return sockets_.Descriptors(); }
  std::span<const transport::GroBatch> Receive(bool thorough);
  bool more() const { return more_; }
  void AbandonInChild();

  // When the kernel received the datagram that contains `bytes`, ns since 1970,
  // if its socket notes times. 0: unknown, or not a datagram of the last
  // Receive.
  int64_t KernelTimeOf(std::span<const uint8_t> bytes) const;

 private:
  static constexpr size_t kBuffers = ReceiveSockets::kMaxAsked;

  // Buffers of a datagram. Never moves, since messages_ points into it.
  struct Incoming {
    std::span<uint8_t> buffer;
    iovec vector{};
    SocketAddress from{};
    alignas(cmsghdr) uint8_t control[kControlBytes] = {};
  };

  // Whether the socket had data.
  bool ReceiveFrom(ReceiveSockets::Socket& socket);
  // Returns the number of datagrams; < 0: none, see errno.
  long Call(int fd, size_t asked);
  void Prepare(size_t index);

  PortCounters& counters_;
  ReceiveSockets sockets_;
  MappedMemory memory_;
  std::array<Incoming, kBuffers> incoming_;
  std::array<mmsghdr, kBuffers> messages_{};
  std::vector<transport::GroBatch> arrivals_;
  bool more_ = false;
};

}  // namespace rxe_user

#endif  // RXE_USER_PORTS_UDP_RECEIVER_H_
