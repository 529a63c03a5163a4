// An io_uring(7) whose requests are complete when the call that submits them
// returns: none of them waits (MSG_DONTWAIT). So any thread may drive it, one
// at a time, and it needs neither cancellation nor a thread that lives on.
//
// A request that waits belongs to the thread that submitted it: the kernel
// completes it in that thread, interrupts the thread's system calls for that
// (epoll_wait(2) returns EINTR), and cancels it when the thread ends. A lane is
// driven by threads of the program, so its ring has no such requests.
//
// When a ring is closed, the kernel interrupts each thread that has submitted
// to it. So the destructor leaves the ring open, and the next Uring takes over
// the descriptor and the queues. Up to 64 such rings are kept.
//
// Flags: none that bind the ring to one thread (IORING_SETUP_SINGLE_ISSUER,
// IORING_SETUP_DEFER_TASKRUN). IORING_SETUP_SUBMIT_ALL: a request that is
// refused does not stop those after it. IORING_SETUP_CQSIZE: there is room for
// the results of several calls (HasRoomFor).
//
// With IORING_SETUP_SQPOLL, a kernel thread polls the submission queue and
// executes the requests. The caller polls for their results in memory, and
// makes a system call only if the thread sleeps, or takes long. The thread
// needs a core of its own, and sleeps if there was no request for
// kKernelThreadIdle.
//
// Linux 6.0 or later: multishot recvmsg, and buffers provided by a ring.
#ifndef RXE_USER_PORTS_URING_H_
#define RXE_USER_PORTS_URING_H_

#include <liburing.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "rxe_user/ports/mapped_memory.h"
#include "rxe_user/ports/udp_socket.h"

namespace rxe_user {

// Thread: one at a time; in a lane, with its lock.
class Uring {
 public:
  // Buffers for received datagrams.
  static constexpr uint16_t kBuffers = 16;
  // The maximum numbers of sends and receives of one Submit.
  static constexpr size_t kMaxSends = 8;
  static constexpr size_t kMaxReceives = 8;
  static constexpr unsigned kResults = 64;

  Uring() = default;
  ~Uring();
  Uring(const Uring&) = delete;
  Uring& operator=(const Uring&) = delete;

  enum class Requests { kByCaller, kByKernelThread };
  // Call once, before anything else. Tries all that is needed. Errors: what the
  // system refused, with the name of the step.
  absl::Status Open(Requests requests);
  // In the child of fork. Only the destructor may be called afterwards.
  void AbandonInChild();

  // False: the system has refused a call for good, for instance since the
  // program has closed the descriptor, or forbidden the call. With a kernel
  // thread always true: it may still execute requests.
  bool works() const { return works_; }
  // All buffers, at least kDatagramBytes for each. Free to use while no receive
  // is prepared or submitted, there are no results, and all buffers are
  // released.
  std::span<uint8_t> memory() const { return memory_.bytes(); }

  // Readable while there are results. High (base/high_fd.h), close-on-exec.
  int fd() const { return ring_.ring_fd; }

  // --- Requests, until Submit. There is room for kMaxReceives receives and
  // kMaxSends sends. `tag` is Result's.

  // Receives what has arrived at `fd`, at most as many datagrams as there are
  // provided buffers.
  void PrepareReceive(int fd, uint64_t tag);
  // Sends `message`, which must live until Submit has returned. `linked`: if it
  // fails, the next request, also a send, is not tried. A send that succeeds
  // has no result.
  void PrepareSend(int fd, const msghdr* message, bool linked, uint64_t tag);
  // Executes all requests, by one system call or none. Returns how many of
  // them, in order, the system has taken. The others are withdrawn; but after a
  // failed call, a kernel thread may still take them.
  size_t Submit();

  // --- Results, in order. A receive has one for each datagram. Mostly one more
  // follows, with EAGAIN (no datagram is left) or ENOBUFS (no buffer is left).

  struct Result {
    uint64_t tag;
    int error;                       // errno; 0: a datagram
    bool last;                       // of its request
    std::optional<uint16_t> buffer;  // the datagram's
    size_t bytes;                    // of the buffer that were written
  };
  size_t results() const { return io_uring_cq_ready(&ring_); }
  // Whether there is room for the results of `sends` sends and all receives.
  // Results without room are lost.
  bool HasRoomFor(size_t sends) const {
    return results() + sends + kBuffers + kMaxReceives <= kResults;
  }
  // The result after `index` others. It is not taken.
  Result Peek(size_t index) const;
  // Takes the first result.
  Result Take();

  // --- Buffers.

  // Makes sure that `count` buffers are provided, or all if there are fewer.
  // Returns how many are provided.
  size_t Provide(size_t count);
  // Returns the buffer of a result, which is then the next to be provided.
  void Release(uint16_t buffer);

  struct Datagram {
    std::span<uint8_t> bytes;
    msghdr message;  // control data and flags
    const SocketAddress* from;
  };
  // The datagram that a receive has written to `buffer`; empty if the buffer
  // has none.
  std::optional<Datagram> Read(uint16_t buffer, size_t bytes);
  // The control data of the buffer that `bytes` are in; null: none.
  const uint8_t* ControlOf(std::span<const uint8_t> bytes) const;

 private:
  // A buffer holds io_uring_recvmsg_out, the sender's address, control data and
  // the datagram, which begins at a page.
  static constexpr size_t kNameBytes = 32;
  static constexpr size_t kHeaderBytes =
      sizeof(io_uring_recvmsg_out) + kNameBytes + kControlBytes;
  static constexpr size_t kPage = 4096;
  static constexpr size_t kStride = kPage + kDatagramBytes;
  static_assert(sizeof(SocketAddress) <= kNameBytes);
  static_assert(kHeaderBytes <= kPage && kHeaderBytes % alignof(cmsghdr) == 0);

  static constexpr unsigned kKernelThreadIdle = 1;  // ms

  absl::Status OpenRing(Requests requests);
  size_t SubmitToKernelThread();
  void DropSentResults();
  absl::Status Try();
  uint8_t* Buffer(uint16_t index) {
    return memory_.bytes().data() + index * kStride + kPage - kHeaderBytes;
  }

  io_uring ring_{};
  bool open_ = false;
  bool works_ = false;
  msghdr sizes_{};  // of a buffer's parts
  MappedMemory entries_;
  MappedMemory memory_;
  std::array<uint16_t, kBuffers> free_{};  // the last is used next
  size_t free_count_ = 0;
  size_t provided_ = 0;
};

}  // namespace rxe_user

#endif  // RXE_USER_PORTS_URING_H_
