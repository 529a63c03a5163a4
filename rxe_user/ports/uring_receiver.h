// The receiving half of the io_uring port: one request receives the datagrams
// that have arrived at a socket into buffers of the ring, and one call executes
// the requests for several sockets.
//
// A request has one buffer more than datagrams are expected. So it mostly ends
// because the socket is empty, and no further call is needed to find that out.
//
// With RingUse::kAlways, while the application polls, a Submit of sends also
// receives (PrepareReceive). The results wait in the ring, in memory, until the
// next Receive. So a lane gets all datagrams by its ring, in order. The ring is
// among the descriptors, since it is readable while such results wait. While
// threads wait on the descriptors, sends do not receive: each result wakes the
// threads that wait on the ring, even one that says that nothing has arrived.
//
// With RingUse::kForBulk, sends do not receive, so no result waits between two
// calls, and plain calls and the ring can take turns. The ring is not among the
// descriptors: programs that sleep would make one more system call each time.
#ifndef RXE_USER_PORTS_URING_RECEIVER_H_
#define RXE_USER_PORTS_URING_RECEIVER_H_

#include <pthread.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "rxe_user/ports/arrival_bell.h"
#include "rxe_user/ports/port.h"
#include "rxe_user/ports/receive_sockets.h"
#include "rxe_user/ports/udp_receiver.h"
#include "rxe_user/ports/uring.h"

namespace rxe_user {

// When a lane uses its ring. kForBulk: while there are large datagrams;
// otherwise plain calls, which take less time for small ones
// (docs/performance.md).
enum class RingUse { kAlways, kForBulk };

// Thread: lane locked, except sockets() and Descriptors().
class UringReceiver {
 public:
  explicit UringReceiver(PortCounters* counters)
      : counters_(*counters), plain_(counters) {}
  // As Uring's.
  absl::Status Open(Uring::Requests requests, RingUse use);

  ReceiveSockets& sockets() { return sockets_; }
  const ReceiveSockets& sockets() const { return sockets_; }

  // As Port's.
  std::vector<int> Descriptors() const;
  std::span<const transport::GroBatch> Receive(bool thorough);
  bool more() const { return more_; }
  void SetWaitedOn(bool waited_on) { waited_on_ = waited_on; }
  // Call before a socket is removed.
  void CloseBell() { bell_.Close(); }
  void AbandonInChild();

  // As UdpReceiver's.
  int64_t KernelTimeOf(std::span<const uint8_t> bytes) const;

  // --- For sends.

  // Whether the ring is used now; else plain calls.
  bool uses_ring() const {
    return ring_.works() && (use_ == RingUse::kAlways || bulk_left_ != 0);
  }
  // A datagram, or a burst of them, has been received or is to be sent.
  void NoteSize(size_t bytes) {
    if (bytes >= kBulkBytes) {
      bulk_left_ = kBulkLasts;
    } else if (bulk_left_ != 0) {
      --bulk_left_;
    }
  }

  // Results of receives have tags below this.
  static constexpr uint64_t kSendTags = uint64_t{1} << 63;

  Uring& ring() { return ring_; }
  // Adds a receive from the socket that last had data to the requests, unless
  // the ring is for bulk, results of an earlier one wait, threads wait, the
  // next Receive must begin with the other sockets, or the bell says that
  // nothing has arrived.
  void PrepareReceive();
  // After Submit: takes all results if there is no datagram among them, so that
  // between calls the ring is readable only if there is one. Such a receive
  // does not change how many datagrams to ask for, since it came so soon.
  void DropEmptyResults();

 private:
  using Clock = std::chrono::steady_clock;
  // If a send has received nothing, the next poll within this time does not ask
  // the sockets: no answer arrives so soon.
  static constexpr Clock::duration kFresh = std::chrono::microseconds(1);
  // Polls in a row that find nothing before the bell is armed: arming costs as
  // much as two of them, and usually the next datagram arrives soon.
  static constexpr uint32_t kEmptyPolls = 16;
  static constexpr uint32_t kMaxEmptyPolls = 1 << 20;
  // Polls beyond those, by one thread, before it opens a bell. A thread that
  // polls a few times before it waits does not need one. Each time that a
  // thread takes over the bell of another one, the number grows 16 times.
  static constexpr uint32_t kIdlePolls = 256;
  static constexpr uint32_t kNever = ~uint32_t{0};

  // What a receive has brought so far.
  struct Taken {
    size_t datagrams = 0;
    size_t bytes = 0;
  };

  static uint64_t TagOf(size_t index, const ReceiveSockets::Socket& socket) {
    return uint64_t{socket.removals} << 16 | index;
  }
  static size_t IndexOf(uint64_t tag) { return tag & 0xffff; }
  // The socket of a result; null: it has been removed.
  ReceiveSockets::Socket* SocketOf(uint64_t tag);
  // Receives by plain calls. Their buffers are those of the ring: they are free
  // now, since none of its results waits.
  std::span<const transport::GroBatch> ReceiveByPlainCalls(bool thorough);
  // The `read` of ReceiveSockets::ReadUntilData: notes the socket, and receives
  // when as many sockets are noted as one call may ask.
  bool Note(size_t index);
  // Receives from the noted sockets by one call. Returns whether there are
  // datagrams.
  bool ReceiveFromNoted();
  // `others`: sockets that the same call asks. On Linux 6.1, a request to an
  // empty socket takes a buffer, too.
  void Prepare(size_t index, size_t others);
  // Takes all results, and adds their datagrams to arrivals_. Returns whether
  // one of the sockets may have more.
  bool TakeResults();
  void CountError(const Uring::Result& result);
  // Whether the bell says that nothing has arrived.
  bool NothingHasRung() const {
    return bell_.IsArmed(sockets_) && !bell_.HasRung();
  }
  // A poll of the calling thread has asked sockets, and found nothing.
  void OnEmptyPoll();
  // Returns the bytes of a datagram that was added to arrivals_.
  size_t Deliver(ReceiveSockets::Socket& socket, uint16_t buffer, size_t bytes);

  // A datagram or burst of kBulkBytes or more is bulk. So are the smaller ones
  // behind it, such as acknowledgements, until kBulkLasts of them in a row.
  static constexpr size_t kBulkBytes = 16 << 10;
  static constexpr uint32_t kBulkLasts = 64;

  PortCounters& counters_;
  UdpReceiver plain_;
  ReceiveSockets& sockets_ = plain_.sockets();
  RingUse use_ = RingUse::kAlways;
  uint32_t bulk_left_ = 0;       // smaller ones until bulk ends
  bool plain_received_ = false;  // the batches of the last Receive
  Uring ring_;
  std::vector<transport::GroBatch> arrivals_;
  std::vector<uint16_t> used_;  // buffers of arrivals_
  std::vector<size_t> noted_;   // sockets to receive from
  std::array<Taken, ReceiveSockets::kMaxSockets> taken_;  // by socket
  bool more_ = false;
  bool waited_on_ = false;
  // When a send received nothing; absent after the next poll.
  std::optional<Clock::time_point> asked_;

  ArrivalBell bell_;
  // Ask all sockets, until they are empty: one has rung, or may have.
  bool ask_all_ = false;
  std::optional<pthread_t> poller_;
  uint32_t empty_polls_ = 0;  // in a row
  uint32_t idle_polls_ = 0;   // of poller_, beyond kEmptyPolls in a row
  uint32_t arm_after_ = kEmptyPolls;
  uint32_t open_after_ = kIdlePolls;
};

}  // namespace rxe_user

#endif  // RXE_USER_PORTS_URING_RECEIVER_H_
