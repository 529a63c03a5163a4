#include "rxe_user/ports/uring_port.h"

#include <errno.h>
#include <unistd.h>

#include "rxe_user/base/errno_status.h"

namespace rxe_user {

absl::StatusOr<std::unique_ptr<Port>> UringPort::Create() {
  auto port = std::make_unique<UringPort>();
  if (absl::Status status = port->OpenRing(); !status.ok()) return status;
  if (absl::Status status = port->Open(); !status.ok()) return status;
  return port;
}

absl::Status UringPort::OpenRing() {
  const int error = ::io_uring_queue_init(kSlots, &ring_, 0);
  if (error != 0) return ErrnoStatus(-error, "io_uring_setup");
  open_ = true;
  (void)::io_uring_ring_dontfork(&ring_);
  if (::io_uring_register_files_sparse(&ring_, kMaxSockets) == 0) {
    file_capacity_ = kMaxSockets;
  }
  return absl::OkStatus();
}

// Sockets that the ring's table holds stay bound until the ring is gone, which
// is after close: so they are taken out first.
UringPort::~UringPort() {
  if (!open_) return;
  if (file_capacity_ != 0) (void)::io_uring_unregister_files(&ring_);
  ::io_uring_queue_exit(&ring_);
}

void UringPort::AbandonInChild() {
  // The ring's memory is not mapped here (dontfork).
  if (open_) ::close(ring_.ring_fd);
  open_ = false;
  UdpPort::AbandonInChild();
}

int UringPort::RegisterReceiver(int fd) {
  if (files_ >= file_capacity_) return -1;
  if (::io_uring_register_files_update(&ring_, static_cast<unsigned>(files_),
                                       &fd, 1) != 1) {
    return -1;
  }
  return files_++;
}

void UringPort::ReceiveSeveral(int fd, int index,
                               std::span<Operation> operations) {
  if (broken_) return ReceiveByCall(fd, operations);
  for (size_t i = 0; i < operations.size(); ++i) {
    Operation& operation = operations[i];
    operation.result = -EAGAIN;
    io_uring_sqe* sqe = ::io_uring_get_sqe(&ring_);
    ::io_uring_prep_recvmsg(sqe, index >= 0 ? index : fd, operation.message,
                            MSG_DONTWAIT);
    if (index >= 0) sqe->flags |= IOSQE_FIXED_FILE;
    sqe->user_data = i;
  }
  size_t left = operations.size();
  while (left > 0) {
    const int submitted =
        ::io_uring_submit_and_wait(&ring_, static_cast<unsigned>(left));
    if (submitted < 0 && submitted != -EINTR) {
      broken_ = true;
      return;
    }
    io_uring_cqe* cqe;
    while (left > 0 && ::io_uring_peek_cqe(&ring_, &cqe) == 0) {
      operations[cqe->user_data].result = cqe->res;
      ::io_uring_cqe_seen(&ring_, cqe);
      --left;
    }
  }
}

}  // namespace rxe_user
