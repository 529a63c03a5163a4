#include "rxe_user/ports/receive_sockets.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "rxe_user/base/public_addresses.h"

namespace rxe_user {
namespace {

// Batches smaller than this are received several at a time, by one call. Larger
// ones would leave the cache before they are processed.
constexpr size_t kSmallBatch = 16 << 10;

}  // namespace

ReceiveSockets::~ReceiveSockets() {
  if (!abandoned_) CloseAll();
}

void ReceiveSockets::CloseAll() {
  for (size_t i = 0; i < socket_count_; ++i) {
    if (sockets_[i].fd >= 0) ::close(sockets_[i].fd);
  }
}

void ReceiveSockets::AbandonInChild() {
  abandoned_ = true;
  CloseAll();
}

absl::Status ReceiveSockets::Add(const LocalAddress& local, int fd) {
  const std::lock_guard<std::mutex> lock(adding_);
  absl::Status status = PrepareReceiver(fd, !local.address.is_v4());
  // Also turned off, since a former owner may have turned them on.
  SetKernelTimes(fd, notes_kernel_times_);
  SetBusyPoll(fd, busy_polls_);
  const size_t count = socket_count_.load(std::memory_order_relaxed);
  size_t index = 0;
  while (index < count && sockets_[index].fd >= 0) ++index;
  if (status.ok() && index == kMaxSockets) {
    status = absl::ResourceExhaustedError("too many addresses");
  }
  if (status.ok()) {
    Socket& socket = sockets_[index];
    socket.local = local;
    socket.bound = BoundAddress(local.address);
    socket.ask = 1;
    socket.had_more = false;
    socket.overflow = DropCount(fd);  // from a former owner
    socket.fd.store(fd, std::memory_order_release);
    if (index == count) {
      socket_count_.store(count + 1, std::memory_order_release);
    }
    version_.fetch_add(1, std::memory_order_release);
  }
  if (!status.ok()) ::close(fd);
  return status;
}

bool ReceiveSockets::Has(const wire::IpAddress& address) const {
  return DescriptorOf(address) >= 0;
}

int ReceiveSockets::DescriptorOf(const wire::IpAddress& address) const {
  const size_t count = socket_count_.load(std::memory_order_acquire);
  for (size_t i = 0; i < count; ++i) {
    const int fd = sockets_[i].fd;
    if (fd >= 0 && sockets_[i].local.address == address) return fd;
  }
  return -1;
}

void ReceiveSockets::Remove(const wire::IpAddress& address) {
  const std::lock_guard<std::mutex> lock(adding_);
  version_.fetch_add(1, std::memory_order_release);
  for (size_t i = 0; i < socket_count_; ++i) {
    Socket& socket = sockets_[i];
    if (socket.fd >= 0 && socket.local.address == address) {
      ++socket.removals;
      ::close(socket.fd.exchange(-1));
    }
  }
}

std::vector<int> ReceiveSockets::Descriptors() const {
  const size_t count = socket_count_.load(std::memory_order_acquire);
  std::vector<int> descriptors;
  for (size_t i = 0; i < count; ++i) {
    const int fd = sockets_[i].fd;
    if (fd >= 0) descriptors.push_back(fd);
  }
  return descriptors;
}

// recvmmsg(2) for one datagram takes 25 % longer than recvmsg(2), and in a
// ping-pong each arrives alone. So the number grows only after two full calls
// in a row.
void ReceiveSockets::ChooseAsk(Socket& socket, size_t got, size_t bytes,
                               bool full) {
  const bool small = bytes < got * kSmallBatch;
  const bool again = full && socket.had_more;
  socket.had_more = full;
  socket.ask = full && !small
                   ? 1
                   : std::clamp<size_t>(again ? got * 2 : got, 1, kMaxAsked);
}

bool ReceiveSockets::Deliver(Socket& socket, std::span<uint8_t> bytes,
                             const msghdr& message, const SocketAddress& from,
                             std::vector<transport::GroBatch>* arrivals) {
  ++counters_.rx_arrivals;
  hot_ = static_cast<size_t>(&socket - sockets_.data());
  const ReceiveControl control = ReadReceiveControl(message);
  if (control.has_overflow) {
    const uint32_t fresh = control.overflow - socket.overflow;
    socket.overflow = control.overflow;
    counters_.rx_overflow += fresh;
    new_overflow_ += fresh;
  }
  if (message.msg_flags & MSG_TRUNC) {
    ++counters_.rx_truncated;
    return false;
  }
  transport::GroBatch batch;
  batch.bytes = bytes;
  batch.segment_size = control.segment_size != 0
                           ? control.segment_size
                           : std::max<size_t>(bytes.size(), 1);
  batch.source = FromSocketAddress(from);
  if (batch.source == socket.bound) batch.source = socket.local.address;
  batch.destination = socket.local.address;
  batch.source_port = ntohs(from.any.sa_family == AF_INET ? from.v4.sin_port
                                                          : from.v6.sin6_port);
  batch.traffic_class = control.traffic_class;
  batch.hop_limit = control.hop_limit;
  arrivals->push_back(batch);
  return true;
}

void ReceiveSockets::NoteKernelTimes() {
  const std::lock_guard<std::mutex> lock(adding_);
  notes_kernel_times_ = true;
  for (const int fd : Descriptors()) SetKernelTimes(fd, true);
}

uint64_t ReceiveSockets::TakeOverflow() {
  return std::exchange(new_overflow_, 0);
}

}  // namespace rxe_user
