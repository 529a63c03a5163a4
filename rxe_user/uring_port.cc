#include "rxe_user/uring_port.h"

#include <errno.h>
#include <unistd.h>

#include "rxe_user/errno_status.h"

namespace rxe_user {
namespace {

constexpr unsigned kEntries = 16;  // twice the slots of a port
constexpr unsigned kFileTable = 512;
// Sends of more than this on average go by plain calls: the ring takes as long
// for each as a call of its own takes, or longer, and what small ones gain by
// sharing one is nothing beside the copying.
constexpr size_t kSmallSend = 4096;

}  // namespace

absl::StatusOr<std::unique_ptr<Port>> UringPort::Create() {
  auto port = std::make_unique<UringPort>();
  if (absl::Status status = port->OpenRing(); !status.ok()) return status;
  if (absl::Status status = port->Open(); !status.ok()) return status;
  return port;
}

absl::Status UringPort::OpenRing() {
  const int error = ::io_uring_queue_init(kEntries, &ring_, 0);
  if (error != 0) return ErrnoStatus(-error, "io_uring_setup");
  open_ = true;
  (void)::io_uring_ring_dontfork(&ring_);
  if (::io_uring_register_files_sparse(&ring_, kFileTable) == 0) {
    file_capacity_ = kFileTable;
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

int UringPort::RegisterFile(int fd) {
  if (files_ >= file_capacity_) return -1;
  if (::io_uring_register_files_update(&ring_, static_cast<unsigned>(files_),
                                       &fd, 1) != 1) {
    return -1;
  }
  return files_++;
}

io_uring_sqe* UringPort::Prepare(const Operation& operation, size_t index,
                                 bool receive) {
  io_uring_sqe* sqe = ::io_uring_get_sqe(&ring_);
  const bool fixed = operation.file.index >= 0;
  const int file = fixed ? operation.file.index : operation.file.fd;
  if (receive) {
    ::io_uring_prep_recvmsg(sqe, file, operation.message, MSG_DONTWAIT);
  } else {
    ::io_uring_prep_sendmsg(sqe, file, operation.message,
                            MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  if (fixed) sqe->flags |= IOSQE_FIXED_FILE;
  sqe->user_data = index;
  return sqe;
}

void UringPort::Run(std::span<Operation> operations, bool receive) {
  for (size_t i = 0; i < operations.size(); ++i) {
    operations[i].result = -EAGAIN;
    Prepare(operations[i], i, receive);
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

void UringPort::SendMessages(std::span<Operation> operations) {
  size_t bytes = 0;
  for (const Operation& operation : operations) {
    bytes += operation.message->msg_iov->iov_len;
  }
  const bool small = bytes <= operations.size() * kSmallSend;
  if (operations.size() > 1 && small && !broken_) {
    ++counters_.tx_calls;
    Run(operations, /*receive=*/false);
    return;
  }
  SendPlainly(operations);
}

void UringPort::ReceiveMessages(std::span<Operation> operations) {
  if (operations.size() > 1 && !broken_) {
    ++counters_.rx_calls;
    Run(operations, /*receive=*/true);
    return;
  }
  for (Operation& operation : operations) {
    ++counters_.rx_calls;
    ReceivePlainly(operation);
  }
}

}  // namespace rxe_user
