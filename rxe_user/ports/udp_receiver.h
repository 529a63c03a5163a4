// The receiving half of the UDP port: the sockets of the device's addresses on
// port 4791, and how many datagrams to ask each for.
//
// Sockets are added under a mutex of their own to a table that never moves, so
// the lane may be locked or not while an address is opened. All other calls
// need the lane's lock.
#ifndef RXE_USER_PORTS_UDP_RECEIVER_H_
#define RXE_USER_PORTS_UDP_RECEIVER_H_

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "rxe_user/ports/port.h"
#include "rxe_user/ports/prefaulted_buffer.h"
#include "rxe_user/ports/udp_socket.h"

namespace rxe_user {

class UdpReceiver {
 public:
  explicit UdpReceiver(PortCounters* counters) : counters_(*counters) {}
  ~UdpReceiver();
  // Call once, before anything else.
  absl::Status Open();

  // As Port's.
  absl::Status Add(const LocalAddress& local, int fd);
  bool Has(const wire::IpAddress& address) const;
  // The socket of `address`, owned by the receiver; -1: none.
  int DescriptorOf(const wire::IpAddress& address) const;
  void Remove(const wire::IpAddress& address);
  std::vector<int> Descriptors() const;
  std::span<const transport::GroBatch> Receive(bool thorough);
  bool more() const { return more_; }
  uint64_t TakeOverflow();
  void AbandonInChild();

  // From now on, the kernel notes when it gets each datagram.
  void NoteKernelTimes();
  // When it got the datagram that contains `bytes`, ns since 1970. 0: not
  // known, or it is not one of the last Receive.
  int64_t KernelTimeOf(std::span<const uint8_t> bytes) const;

 private:
  static constexpr size_t kBuffers = 8;
  static constexpr size_t kMaxSockets = 256;

  struct Socket {
    // Written last when added. -1: removed, the entry is free.
    std::atomic<int> fd = -1;
    LocalAddress local;
    // The interface's address if `local` is a public one
    // (base/public_addresses.h); else `local`.
    wire::IpAddress bound;
    size_t ask = 1;         // datagrams to ask for in one call
    bool had_more = false;  // the last call was full
    uint32_t overflow = 0;  // the last count of SO_RXQ_OVFL
  };
  // Buffers of a datagram. Never moves, since messages_ points into it.
  struct Incoming {
    std::span<uint8_t> buffer;
    iovec vector{};
    SocketAddress from{};
    alignas(cmsghdr) uint8_t control[kControlBytes] = {};
  };

  void CloseAll();
  size_t ReceiveFrom(Socket& socket);
  // Returns the number of datagrams; < 0: none, see errno.
  long Call(int fd, size_t asked);
  void Prepare(size_t index);
  // Returns the bytes of message `index`; 0 if it was dropped.
  size_t Deliver(Socket& socket, size_t index);

  PortCounters& counters_;
  bool abandoned_ = false;

  std::mutex adding_;                // serializes growth of the table
  bool notes_kernel_times_ = false;  // under adding_
  std::array<Socket, kMaxSockets> sockets_;
  std::atomic<size_t> socket_count_ = 0;

  PrefaultedBuffer memory_;
  std::array<Incoming, kBuffers> incoming_;
  std::array<mmsghdr, kBuffers> messages_{};
  std::vector<transport::GroBatch> arrivals_;
  size_t hot_ = 0;  // the socket that last had data
  uint32_t tick_ = 0;
  bool more_ = false;
  uint64_t new_overflow_ = 0;
};

}  // namespace rxe_user

#endif  // RXE_USER_PORTS_UDP_RECEIVER_H_
