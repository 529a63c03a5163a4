#include "rxe_user/ports/udp_receiver.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "rxe_user/base/public_addresses.h"

namespace rxe_user {
namespace {

// Batches smaller than this are received several in a call. Larger ones would
// leave the cache before they are processed.
constexpr size_t kSmallBatch = 16 << 10;
// One call in this many also reads quiet sockets.
constexpr uint32_t kQuietInterval = 8;

}  // namespace

absl::Status UdpReceiver::Open() {
  memory_ = PrefaultedBuffer(kBuffers * kDatagramBytes);
  if (memory_.bytes().empty()) {
    return absl::ResourceExhaustedError("no memory for packet buffers");
  }
  arrivals_.reserve(kBuffers);
  for (size_t i = 0; i < kBuffers; ++i) {
    Incoming& incoming = incoming_[i];
    incoming.buffer =
        memory_.bytes().subspan(i * kDatagramBytes, kDatagramBytes);
    incoming.vector = {incoming.buffer.data(), incoming.buffer.size()};
    Prepare(i);
  }
  return absl::OkStatus();
}

UdpReceiver::~UdpReceiver() {
  if (abandoned_) return;
  CloseAll();
}

void UdpReceiver::CloseAll() {
  for (size_t i = 0; i < socket_count_; ++i) {
    if (sockets_[i].fd >= 0) ::close(sockets_[i].fd);
  }
}

void UdpReceiver::AbandonInChild() {
  abandoned_ = true;
  CloseAll();
  memory_.Release();
}

absl::Status UdpReceiver::Add(const LocalAddress& local, int fd) {
  const std::lock_guard<std::mutex> lock(adding_);
  absl::Status status = PrepareReceiver(fd, !local.address.is_v4());
  // Also off: a former owner may have had it on.
  SetKernelTimes(fd, notes_kernel_times_);
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
  }
  if (!status.ok()) ::close(fd);
  return status;
}

bool UdpReceiver::Has(const wire::IpAddress& address) const {
  return DescriptorOf(address) >= 0;
}

int UdpReceiver::DescriptorOf(const wire::IpAddress& address) const {
  const size_t count = socket_count_.load(std::memory_order_acquire);
  for (size_t i = 0; i < count; ++i) {
    const int fd = sockets_[i].fd;
    if (fd >= 0 && sockets_[i].local.address == address) return fd;
  }
  return -1;
}

void UdpReceiver::Remove(const wire::IpAddress& address) {
  const std::lock_guard<std::mutex> lock(adding_);
  for (size_t i = 0; i < socket_count_; ++i) {
    Socket& socket = sockets_[i];
    if (socket.fd >= 0 && socket.local.address == address) {
      ::close(socket.fd.exchange(-1));
    }
  }
}

std::vector<int> UdpReceiver::Descriptors() const {
  const size_t count = socket_count_.load(std::memory_order_acquire);
  std::vector<int> descriptors;
  for (size_t i = 0; i < count; ++i) {
    const int fd = sockets_[i].fd;
    if (fd >= 0) descriptors.push_back(fd);
  }
  return descriptors;
}

std::span<const transport::GroBatch> UdpReceiver::Receive(bool thorough) {
  arrivals_.clear();
  more_ = false;
  const size_t count = socket_count_.load(std::memory_order_acquire);
  if (count == 0) return {};
  // Every call reads the busy socket. At intervals another one is first, so
  // that a flood at one address does not starve the others.
  const bool turn = ++tick_ % kQuietInterval == 0;
  const size_t first = turn ? hot_ + 1 : hot_;
  const size_t asked = thorough || turn ? count : 1;
  for (size_t i = 0; i < asked; ++i) {
    const size_t index = (first + i) % count;
    if (ReceiveFrom(sockets_[index]) != 0) {
      hot_ = index;
      break;
    }
  }
  return arrivals_;
}

size_t UdpReceiver::ReceiveFrom(Socket& socket) {
  const int fd = socket.fd.load(std::memory_order_acquire);
  if (fd < 0) return 0;
  const size_t asked = socket.ask;
  long received = Call(fd, asked);
  // Most errors are reported once, and datagrams may be queued behind them.
  if (received < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
    ++counters_.rx_errors;
    received = Call(fd, asked);
  }
  if (received < 0) {
    socket.ask = 1;
    socket.had_more = false;
    return 0;
  }
  const auto got = static_cast<size_t>(received);
  size_t bytes = 0;
  for (size_t i = 0; i < got; ++i) bytes += Deliver(socket, i);
  more_ = got == asked;
  const bool small = bytes < got * kSmallBatch;
  // recvmmsg(2) for one datagram takes 25 % longer than recvmsg(2), and in a
  // ping-pong each arrives alone. So the number grows only after two full calls
  // in a row.
  const bool again = more_ && socket.had_more;
  socket.had_more = more_;
  socket.ask = !more_   ? std::max<size_t>(got, 1)
               : !small ? 1
               : again  ? std::min(asked * 2, kBuffers)
                        : asked;
  return got;
}

// By syscall(2): these functions of the C library are cancellation points,
// which costs two checks in each call. Threads are not cancelled under the
// lane's lock (adaptive_lock.h).
long UdpReceiver::Call(int fd, size_t asked) {
  ++counters_.rx_calls;
  if (asked > 1) {
    return ::syscall(SYS_recvmmsg, fd, messages_.data(), asked, MSG_DONTWAIT,
                     nullptr);
  }
  const long bytes =
      ::syscall(SYS_recvmsg, fd, &messages_[0].msg_hdr, MSG_DONTWAIT);
  if (bytes < 0) return bytes;
  messages_[0].msg_len = static_cast<unsigned>(bytes);
  return 1;
}

size_t UdpReceiver::Deliver(Socket& socket, size_t index) {
  ++counters_.rx_arrivals;
  const Incoming& incoming = incoming_[index];
  const size_t bytes = messages_[index].msg_len;
  const ReceiveControl control = ReadReceiveControl(messages_[index].msg_hdr);
  const bool truncated = messages_[index].msg_hdr.msg_flags & MSG_TRUNC;
  Prepare(index);
  if (control.has_overflow) {
    const uint32_t fresh = control.overflow - socket.overflow;
    socket.overflow = control.overflow;
    counters_.rx_overflow += fresh;
    new_overflow_ += fresh;
  }
  if (truncated) {
    ++counters_.rx_truncated;
    return 0;
  }
  transport::GroBatch batch;
  batch.bytes = incoming.buffer.first(bytes);
  batch.segment_size = control.segment_size != 0 ? control.segment_size
                                                 : std::max<size_t>(bytes, 1);
  batch.source = FromSocketAddress(incoming.from);
  if (batch.source == socket.bound) batch.source = socket.local.address;
  batch.destination = socket.local.address;
  batch.source_port = ntohs(incoming.from.any.sa_family == AF_INET
                                ? incoming.from.v4.sin_port
                                : incoming.from.v6.sin6_port);
  batch.traffic_class = control.traffic_class;
  batch.hop_limit = control.hop_limit;
  arrivals_.push_back(batch);
  return bytes;
}

// A receive overwrites the message header, so all of it is set again.
void UdpReceiver::Prepare(size_t index) {
  Incoming& incoming = incoming_[index];
  msghdr& message = messages_[index].msg_hdr;
  message.msg_name = &incoming.from;
  message.msg_namelen = sizeof(incoming.from);
  message.msg_iov = &incoming.vector;
  message.msg_iovlen = 1;
  message.msg_control = incoming.control;
  message.msg_controllen = sizeof(incoming.control);
  message.msg_flags = 0;
}

void UdpReceiver::NoteKernelTimes() {
  const std::lock_guard<std::mutex> lock(adding_);
  notes_kernel_times_ = true;
  for (const int fd : Descriptors()) SetKernelTimes(fd, true);
}

// From the control data of its buffer, which stays until the next receive: so
// nothing is read unless somebody asks.
int64_t UdpReceiver::KernelTimeOf(std::span<const uint8_t> bytes) const {
  const auto at = reinterpret_cast<uintptr_t>(bytes.data());
  const auto first = reinterpret_cast<uintptr_t>(incoming_[0].buffer.data());
  const size_t index = (at - first) / kDatagramBytes;
  if (at < first || index >= kBuffers) return 0;
  return KernelTimeIn(incoming_[index].control);
}

uint64_t UdpReceiver::TakeOverflow() { return std::exchange(new_overflow_, 0); }

}  // namespace rxe_user
