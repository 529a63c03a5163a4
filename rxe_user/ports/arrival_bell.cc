#include "rxe_user/ports/arrival_bell.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/high_fd.h"

namespace rxe_user {
namespace {

// The tag of a request that cancels others.
constexpr uint64_t kCancel = ~uint64_t{0};

}  // namespace

absl::Status ArrivalBell::Open() {
  Close();
  io_uring_params params{};
  params.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
                 IORING_SETUP_TASKRUN_FLAG;
  const int error =
      -::io_uring_queue_init_params(2 * kMaxSockets, &ring_, &params);
  if (error != 0) return ErrnoStatus(error, "io_uring_setup");
  ring_.ring_fd = ring_.enter_ring_fd = MoveHigh(ring_.ring_fd);
  // If this fails, a child has a mapping that it does not use.
  (void)::io_uring_ring_dontfork(&ring_);
  open_ = true;
  owner_ = ::pthread_self();
  requests_ = {};
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) == 0) {
    end_ = UniqueFd(MoveHigh(ends[0]));
    const UniqueFd other(ends[1]);
    if (::io_uring_register_files(&ring_, &ends[1], 1) == 0) {
      return absl::OkStatus();
    }
  }
  const absl::Status refused = ErrnoStatus(errno, "io_uring: files");
  Close();
  return refused;
}

// The kernel ends a ring some time after close(2), and then closes the ring's
// files: `end_` shows when.
void ArrivalBell::Close() {
  if (!open_) return;
  const bool cancelled = is_callers() && Cancel();
  open_ = armed_ = false;
  ::io_uring_queue_exit(&ring_);
  pollfd end = {end_.get(), 0, 0};
  if (!cancelled && end_.valid()) ::poll(&end, 1, kMaxClosing);
  end_ = UniqueFd();
}

// The mappings were not inherited.
void ArrivalBell::AbandonInChild() {
  if (!open_) return;
  open_ = armed_ = false;
  ::close(ring_.ring_fd);
  end_ = UniqueFd();
}

bool ArrivalBell::Cancel() {
  io_uring_sqe* const request = ::io_uring_get_sqe(&ring_);
  ::io_uring_prep_cancel64(request, 0, IORING_ASYNC_CANCEL_ANY);
  request->user_data = kCancel;
  const auto pending = [this] {
    return std::any_of(requests_.begin(), requests_.end(),
                       [](uint8_t count) { return count != 0; });
  };
  // The second call completes the requests that the first one has cancelled.
  for (int i = 0; i < 2 && (i == 0 || pending()); ++i) {
    if (::io_uring_submit_and_get_events(&ring_) < 0) break;
    TakeResults();
  }
  return !pending();
}

// The socket whose request has completed is usually the one that last had data.
// It gets a new request by the same call that takes the result of the old one.
bool ArrivalBell::Arm(ReceiveSockets& sockets) {
  armed_ = false;
  version_ = sockets.version();
  const size_t count = sockets.count();
  if (count > kMaxSockets) return false;
  size_t again = HasRung() ? sockets.hot() : count;
  for (int i = 0; i < 2; ++i) {
    int prepared = 0;
    for (size_t index = 0; index < count; ++index) {
      const int fd = sockets[index].fd.load(std::memory_order_acquire);
      if (fd < 0) continue;
      if (requests_[index] != 0 && (index != again || requests_[index] > 1)) {
        continue;
      }
      io_uring_sqe* const request = ::io_uring_get_sqe(&ring_);
      ::io_uring_prep_poll_add(request, fd, POLLIN);
      request->user_data = index;
      ++requests_[index];
      ++prepared;
    }
    again = count;
    if (::io_uring_submit_and_get_events(&ring_) != prepared) {
      // For instance, the caller is another thread with the owner's number.
      Close();
      return false;
    }
    TakeResults();
    armed_ = !HasRung();
    for (size_t index = 0; index < count && armed_; ++index) {
      armed_ = requests_[index] != 0 ||
               sockets[index].fd.load(std::memory_order_relaxed) < 0;
    }
    if (armed_) return true;
  }
  return false;
}

void ArrivalBell::TakeResults() {
  unsigned head;
  unsigned count = 0;
  io_uring_cqe* result;
  io_uring_for_each_cqe(&ring_, head, result) {
    if (result->user_data < kMaxSockets) --requests_[result->user_data];
    ++count;
  }
  ::io_uring_cq_advance(&ring_, count);
}

}  // namespace rxe_user
