// Tells the threads that poll a lane, by a word in memory, that nothing has
// arrived. Such a poll makes no system call.
//
// The bell is an io_uring(7) of one thread, its owner, with a poll request for
// each socket of the lane. The first datagram at a socket completes the
// request, which leaves the socket's wait queue. So further datagrams cost
// their senders nothing until the bell is armed again.
//
// Flags. IORING_SETUP_DEFER_TASKRUN: the kernel leaves a completed request
// until the owner enters the ring. Otherwise it would process the request in
// the owner at once, or with IORING_SETUP_COOP_TASKRUN at the owner's next
// system call, and interrupt a call in which the owner sleeps (epoll_wait(2)
// returns EINTR). IORING_SETUP_TASKRUN_FLAG: a completed request sets
// IORING_SQ_TASKRUN in a word of the ring, which any thread may read.
// IORING_SETUP_SINGLE_ISSUER: IORING_SETUP_DEFER_TASKRUN requires it. So only
// the owner arms the bell.
//
// Datagrams are not received by this ring. That would save a call for each
// arrival, but a round trip takes 1.3 times as long, and only one thread could
// receive (docs/notes/performance-log.md).
//
// Linux 6.1 or later.
#ifndef RXE_USER_PORTS_ARRIVAL_BELL_H_
#define RXE_USER_PORTS_ARRIVAL_BELL_H_

#include <liburing.h>
#include <pthread.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "rxe_user/base/unique_fd.h"
#include "rxe_user/ports/receive_sockets.h"

namespace rxe_user {

// Thread: lane locked.
class ArrivalBell {
 public:
  ArrivalBell() = default;
  ~ArrivalBell() { Close(); }
  ArrivalBell(const ArrivalBell&) = delete;
  ArrivalBell& operator=(const ArrivalBell&) = delete;

  // The calling thread becomes the owner, in place of an earlier one. Errors:
  // what the system refused.
  absl::Status Open();
  // Ends the requests, which keep the sockets open. If the caller is not the
  // owner, this takes some 20 ms, at most kMaxClosing, and the kernel
  // interrupts the owner once.
  void Close();
  void AbandonInChild();

  bool is_open() const { return open_; }
  bool is_callers() const {
    return open_ && ::pthread_equal(owner_, ::pthread_self()) != 0;
  }

  // Called by the owner. From now on the bell rings on arrivals at `sockets`.
  // False: something has arrived already, the lane has too many sockets, or the
  // bell cannot be armed any more and is closed. Makes one or two system calls.
  bool Arm(ReceiveSockets& sockets);
  // Whether the bell is armed for all present sockets.
  bool IsArmed(const ReceiveSockets& sockets) const {
    return armed_ && version_ == sockets.version();
  }
  // While armed: whether something may have arrived since.
  bool HasRung() const {
    return io_uring_cq_ready(&ring_) != 0 ||
           (IO_URING_READ_ONCE(*ring_.sq.kflags) & IORING_SQ_TASKRUN) != 0;
  }
  void Disarm() { armed_ = false; }

 private:
  static constexpr size_t kMaxSockets = 32;
  static constexpr int kMaxClosing = 100;  // ms

  // False: some requests are left.
  bool Cancel();
  void TakeResults();

  io_uring ring_{};
  UniqueFd end_;  // its other end is a file of the ring, closed with it
  bool open_ = false;
  bool armed_ = false;
  pthread_t owner_{};
  uint32_t version_ = 0;  // of the sockets, when armed
  // By index of the socket: requests whose results have not been taken.
  std::array<uint8_t, kMaxSockets> requests_{};
};

}  // namespace rxe_user

#endif  // RXE_USER_PORTS_ARRIVAL_BELL_H_
