#include "rxe_user/ports/uring.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <mutex>
#include <string_view>

#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/fork_guard.h"
#include "rxe_user/base/high_fd.h"
#include "rxe_user/base/only_one.h"
#include "rxe_user/base/unique_fd.h"

namespace rxe_user {
namespace {

// Entries of the submission queue, for the requests of two calls: the kernel
// thread may not have freed the entries of the last call yet, although its
// requests are complete (SubmitToKernelThread).
constexpr unsigned kRequests = 32;
static_assert(kRequests >= 2 * (Uring::kMaxSends + Uring::kMaxReceives));
// Of provided buffers. Linux 6.1 keeps the lists of groups below 64 when they
// are unregistered, with the position that the kernel has reached. The next
// Uring that uses the ring begins at the first position.
constexpr int kGroup = 64;

bool HasKernelThread(const io_uring& ring) {
  return (ring.flags & IORING_SETUP_SQPOLL) != 0;
}

// Polls of the completion queue before a caller sleeps until the kernel thread
// has completed a request. The thread may have been preempted.
constexpr int kSpins = 2000;

// Errors of io_uring_enter(2) after which the next call may succeed.
bool IsTransient(int error) {
  return error == EAGAIN || error == EBUSY || error == EINTR || error == ENOMEM;
}

// Whether the number is known to be another file's: the program may have closed
// our descriptor, and opened a file.
bool IsOther(int fd) {
  std::array<char, 32> link{};
  (void)std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", fd);
  std::array<char, 64> name{};
  return ::readlink(link.data(), name.data(), name.size() - 1) > 0 &&
         std::string_view(name.data()) != "anon_inode:[io_uring]";
}

// Rings without requests, results and buffers, for the next Uring. At most as
// many as were open at the same time. Thread: any.
class IdleRings final : private ForkGuard {
 public:
  IdleRings() : ForkGuard(ForkLevel::kLeafLocks) { EnterForkGuard(); }
  ~IdleRings() { LeaveForkGuard(); }

  // `kernel_thread`: whether the ring must have one.
  std::optional<io_uring> Take(bool kernel_thread) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ForgetParents();
    for (size_t i = 0; i < count_; ++i) {
      if (HasKernelThread(rings_[i]) != kernel_thread) continue;
      const io_uring found = rings_[i];
      rings_[i] = rings_[--count_];
      return found;
    }
    return std::nullopt;
  }
  // False: there is no room.
  bool Give(const io_uring& ring) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ForgetParents();
    if (count_ == rings_.size()) return false;
    rings_[count_++] = ring;
    return true;
  }

 private:
  // In a child that was created without the handlers of fork: forgets the
  // parent's rings. Their mappings were not inherited, and their descriptors'
  // numbers may be in use for other files by now.
  void ForgetParents() {
    const pid_t process = ::getpid();
    if (process == process_) return;
    count_ = 0;
    process_ = process;
  }

  void BeforeFork() override { mutex_.lock(); }
  void AfterForkInParent() override { mutex_.unlock(); }
  void AfterForkInChild() override {
    while (count_ != 0) ::close(rings_[--count_].ring_fd);
    process_ = ::getpid();
    mutex_.unlock();
  }

  std::mutex mutex_;
  pid_t process_ = ::getpid();
  std::array<io_uring, 64> rings_{};
  size_t count_ = 0;
};

}  // namespace

absl::Status Uring::OpenRing(Requests requests) {
  const bool kernel_thread = requests == Requests::kByKernelThread;
  if (const std::optional<io_uring> idle =
          OnlyOne<IdleRings>().Take(kernel_thread)) {
    ring_ = *idle;
    open_ = true;
    return absl::OkStatus();
  }
  io_uring_params params{};
  params.flags = IORING_SETUP_CQSIZE | IORING_SETUP_SUBMIT_ALL;
  params.cq_entries = kResults;
  if (kernel_thread) {
    params.flags |= IORING_SETUP_SQPOLL;
    params.sq_thread_idle = kKernelThreadIdle;
  }
  const int error = -::io_uring_queue_init_params(kRequests, &ring_, &params);
  if (error != 0) return ErrnoStatus(error, "io_uring_setup");
  open_ = true;
  ring_.ring_fd = ring_.enter_ring_fd = MoveHigh(ring_.ring_fd);
  // If this fails, a child has a mapping that it does not use.
  (void)::io_uring_ring_dontfork(&ring_);
  return absl::OkStatus();
}

absl::Status Uring::Open(Requests requests) {
  if (absl::Status status = OpenRing(requests); !status.ok()) return status;
  entries_ = MappedMemory::Prefaulted(kPage);
  memory_ = MappedMemory::Prefaulted(kBuffers * kStride);
  if (entries_.bytes().empty() || memory_.bytes().empty()) {
    return absl::ResourceExhaustedError("no memory for packet buffers");
  }
  sizes_.msg_namelen = kNameBytes;
  sizes_.msg_controllen = kControlBytes;
  for (uint16_t i = 0; i < kBuffers; ++i) free_[i] = kBuffers - 1 - i;
  free_count_ = kBuffers;
  const absl::Status tried = Try();
  works_ = tried.ok();
  return tried;
}

absl::Status Uring::Try() {
  static_assert(kBuffers * sizeof(io_uring_buf) <= kPage);
  io_uring_buf_reg registration{};
  registration.ring_addr = reinterpret_cast<uint64_t>(entries_.bytes().data());
  registration.ring_entries = kBuffers;
  registration.bgid = kGroup;
  int error = -::io_uring_register_buf_ring(&ring_, &registration, 0);
  if (error != 0) return ErrnoStatus(error, "io_uring: buffer ring");
  const UniqueFd probe(
      ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe.valid()) return ErrnoStatus(errno, "UDP socket");
  Provide(1);
  PrepareReceive(probe.get(), 0);
  if (Submit() == 0 || results() != 1) {
    return absl::UnavailableError("io_uring: a receive was not made");
  }
  const Result result = Take();
  if (result.buffer) Release(*result.buffer);
  if (result.error != EAGAIN) {
    return ErrnoStatus(result.error, "io_uring: multishot recvmsg");
  }
  return absl::OkStatus();
}

// If the buffers cannot be unregistered, the program may have closed the
// descriptor.
Uring::~Uring() {
  if (!open_) return;
  const bool good =
      works_ && ::io_uring_unregister_buf_ring(&ring_, kGroup) == 0;
  ::io_uring_cq_advance(&ring_, static_cast<unsigned>(results()));
  if (good && OnlyOne<IdleRings>().Give(ring_)) return;
  if (IsOther(ring_.ring_fd)) ring_.ring_fd = -1;
  ::io_uring_queue_exit(&ring_);
}

// The mappings were not inherited.
void Uring::AbandonInChild() {
  if (!open_) return;
  open_ = false;
  if (!IsOther(ring_.ring_fd)) ::close(ring_.ring_fd);
  entries_.Release();
  memory_.Release();
}

void Uring::PrepareReceive(int fd, uint64_t tag) {
  io_uring_sqe* const request = ::io_uring_get_sqe(&ring_);
  if (request == nullptr) return;
  ::io_uring_prep_recvmsg_multishot(request, fd, &sizes_, MSG_DONTWAIT);
  request->flags |= IOSQE_BUFFER_SELECT;
  request->buf_group = kGroup;
  request->user_data = tag;
}

void Uring::PrepareSend(int fd, const msghdr* message, bool linked,
                        uint64_t tag) {
  io_uring_sqe* const request = ::io_uring_get_sqe(&ring_);
  if (request == nullptr) return;
  ::io_uring_prep_sendmsg(request, fd, message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (linked) request->flags |= IOSQE_IO_LINK;
  if (!HasKernelThread(ring_)) request->flags |= IOSQE_CQE_SKIP_SUCCESS;
  request->user_data = tag;
}

// The thread executes requests and publishes their results, and only then moves
// the head of the submission queue past them. So the head does not say which
// requests are left: it may still include requests of the last call. The thread
// may take requests after a call that failed, so none is withdrawn.
size_t Uring::SubmitToKernelThread() {
  const unsigned prepared = ring_.sq.sqe_tail - ring_.sq.sqe_head;
  size_t seen = results();
  if (::io_uring_submit(&ring_) < 0) return 0;
  unsigned made = 0;
  for (int spins = 0;;) {
    for (const size_t end = results(); seen < end; ++seen) {
      made += Peek(seen).last ? 1 : 0;
    }
    if (made >= prepared) break;
    if (++spins < kSpins) continue;
    const int error = ::io_uring_enter(static_cast<unsigned>(ring_.ring_fd), 0,
                                       static_cast<unsigned>(seen + 1),
                                       IORING_ENTER_GETEVENTS, nullptr);
    if (error < 0 && error != -EINTR) return made;
  }
  DropSentResults();
  return prepared;
}

// The kernel does not touch the results between head and tail. So those that
// stay are moved up to the tail.
void Uring::DropSentResults() {
  const unsigned head = *ring_.cq.khead;
  const unsigned tail = head + static_cast<unsigned>(results());
  unsigned kept = tail;
  for (unsigned at = tail; at != head;) {
    const io_uring_cqe& cqe = ring_.cq.cqes[--at & ring_.cq.ring_mask];
    const bool sent = cqe.res >= 0 && (cqe.flags & IORING_CQE_F_BUFFER) == 0;
    if (!sent) ring_.cq.cqes[--kept & ring_.cq.ring_mask] = cqe;
  }
  ::io_uring_cq_advance(&ring_, kept - head);
}

size_t Uring::Submit() {
  if (HasKernelThread(ring_)) return SubmitToKernelThread();
  const unsigned prepared = ::io_uring_sq_ready(&ring_);
  const int taken = ::io_uring_submit(&ring_);
  if (taken >= 0 && static_cast<unsigned>(taken) == prepared) return prepared;
  works_ = taken > 0 || (taken < 0 && IsTransient(-taken));
  // For instance, the system had no memory for the others. They must not be
  // taken with the next requests.
  const unsigned head = io_uring_smp_load_acquire(ring_.sq.khead);
  ring_.sq.sqe_head = ring_.sq.sqe_tail = head;
  io_uring_smp_store_release(ring_.sq.ktail, head);
  return static_cast<size_t>(std::max(taken, 0));
}

Uring::Result Uring::Peek(size_t index) const {
  const unsigned at = *ring_.cq.khead + static_cast<unsigned>(index);
  const io_uring_cqe& cqe = ring_.cq.cqes[at & ring_.cq.ring_mask];
  Result result = {.tag = cqe.user_data,
                   .error = std::max(-cqe.res, 0),
                   .last = (cqe.flags & IORING_CQE_F_MORE) == 0,
                   .buffer = std::nullopt,
                   .bytes = static_cast<size_t>(std::max(cqe.res, 0))};
  // Some kernels also use up a buffer for an error.
  if (cqe.flags & IORING_CQE_F_BUFFER) {
    result.buffer = static_cast<uint16_t>(cqe.flags >> IORING_CQE_BUFFER_SHIFT);
  }
  return result;
}

Uring::Result Uring::Take() {
  const Result result = Peek(0);
  if (result.buffer) --provided_;
  ::io_uring_cq_advance(&ring_, 1);
  return result;
}

size_t Uring::Provide(size_t count) {
  auto* const entries =
      reinterpret_cast<io_uring_buf_ring*>(entries_.bytes().data());
  int added = 0;
  while (provided_ < count && free_count_ != 0) {
    const uint16_t index = free_[--free_count_];
    ::io_uring_buf_ring_add(entries, Buffer(index),
                            kHeaderBytes + kDatagramBytes, index,
                            io_uring_buf_ring_mask(kBuffers), added++);
    ++provided_;
  }
  if (added != 0) ::io_uring_buf_ring_advance(entries, added);
  return provided_;
}

void Uring::Release(uint16_t buffer) { free_[free_count_++] = buffer; }

std::optional<Uring::Datagram> Uring::Read(uint16_t buffer, size_t bytes) {
  uint8_t* const data = Buffer(buffer);
  const auto* const out = reinterpret_cast<const io_uring_recvmsg_out*>(data);
  if (bytes < kHeaderBytes || bytes > kHeaderBytes + kDatagramBytes ||
      out->controllen > kControlBytes) {
    return std::nullopt;
  }
  Datagram datagram{};
  datagram.bytes = {data + kHeaderBytes, bytes - kHeaderBytes};
  datagram.message.msg_control = data + kHeaderBytes - kControlBytes;
  datagram.message.msg_controllen = out->controllen;
  datagram.message.msg_flags = static_cast<int>(out->flags);
  datagram.from = reinterpret_cast<const SocketAddress*>(data + sizeof(*out));
  return datagram;
}

const uint8_t* Uring::ControlOf(std::span<const uint8_t> bytes) const {
  const auto at = reinterpret_cast<uintptr_t>(bytes.data());
  const auto first = reinterpret_cast<uintptr_t>(memory_.bytes().data());
  const size_t index = (at - first) / kStride;
  if (at < first || index >= kBuffers) return nullptr;
  return memory_.bytes().data() + index * kStride + kPage - kControlBytes;
}

}  // namespace rxe_user
