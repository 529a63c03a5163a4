// The sockets of the device's addresses on port 4791, for the receiving half of
// a port of UDP sockets: which of them to read, how many datagrams to ask each
// for, and what a datagram's control data say.
//
// Sockets are added under a mutex of their own to a table that never moves, so
// the lane may be locked or not while an address is opened. All other calls
// need the lane's lock.
#ifndef RXE_USER_PORTS_RECEIVE_SOCKETS_H_
#define RXE_USER_PORTS_RECEIVE_SOCKETS_H_

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "rxe_user/base/settings.h"
#include "rxe_user/ports/port.h"
#include "rxe_user/ports/udp_socket.h"

namespace rxe_user {

class ReceiveSockets {
 public:
  // The maximum number of datagrams to ask for in one call.
  static constexpr size_t kMaxAsked = 8;
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
    uint32_t removals = 0;  // of the entry's sockets so far
  };

  explicit ReceiveSockets(PortCounters* counters) : counters_(*counters) {}
  ~ReceiveSockets();

  // As Port's.
  absl::Status Add(const LocalAddress& local, int fd);
  bool Has(const wire::IpAddress& address) const;
  // The socket of `address`, owned by this object; -1: none.
  int DescriptorOf(const wire::IpAddress& address) const;
  void Remove(const wire::IpAddress& address);
  std::vector<int> Descriptors() const;
  uint64_t TakeOverflow();
  void AbandonInChild();
  // From now on, the kernel notes when it gets each datagram.
  void NoteKernelTimes();

  Socket& operator[](size_t index) { return sockets_[index]; }
  // Entries, free ones included. Lane locked or not.
  size_t count() const { return socket_count_.load(std::memory_order_acquire); }
  // Changes when a socket is added or removed. Lane locked or not.
  uint32_t version() const { return version_.load(std::memory_order_acquire); }
  // The index of the socket that last had data.
  size_t hot() const { return hot_; }

  // Calls read(index) for the sockets that must be read now, until one of the
  // calls returns true: there are datagrams.
  template <typename Read>
  void ReadUntilData(bool thorough, Read read) {
    const size_t count = socket_count_.load(std::memory_order_acquire);
    if (count == 0) return;
    // Every call reads the busy socket. At intervals another one is first, so
    // that a flood at one address does not starve the others.
    const bool turn = others_are_next();
    ++tick_;
    const size_t first = turn ? hot_ + 1 : hot_;
    const size_t asked = thorough || turn ? count : 1;
    for (size_t i = 0; i < asked; ++i) {
      if (read((first + i) % count)) break;
    }
  }

  // Whether the next ReadUntilData reads the others before the busy socket.
  bool others_are_next() const { return (tick_ + 1) % kQuietInterval == 0; }
  // Counts a read of the busy socket that was made without ReadUntilData.
  void CountBusyRead() { ++tick_; }

  // A call returned `got` datagrams of `bytes` in all; `full`: as many as it
  // could. Chooses `socket.ask`.
  static void ChooseAsk(Socket& socket, size_t got, size_t bytes, bool full);

  // Adds a received datagram to `arrivals`, or counts it as dropped. `message`:
  // control data and flags. Returns whether it was added.
  bool Deliver(Socket& socket, std::span<uint8_t> bytes, const msghdr& message,
               const SocketAddress& from,
               std::vector<transport::GroBatch>* arrivals);

 private:
  // One call in this many also reads quiet sockets.
  static constexpr uint32_t kQuietInterval = 8;

  void CloseAll();

  PortCounters& counters_;
  bool abandoned_ = false;

  std::mutex adding_;  // serializes growth of the table
  // RXE_USER_SPIN_US asks for busy polling.
  const bool busy_polls_ = HelperSpin() != 0;
  bool notes_kernel_times_ = false;  // under adding_
  std::array<Socket, kMaxSockets> sockets_;
  std::atomic<size_t> socket_count_ = 0;
  std::atomic<uint32_t> version_ = 0;
  size_t hot_ = 0;
  uint32_t tick_ = 0;
  uint64_t new_overflow_ = 0;
};

}  // namespace rxe_user

#endif  // RXE_USER_PORTS_RECEIVE_SOCKETS_H_
