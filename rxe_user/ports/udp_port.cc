#include "rxe_user/ports/udp_port.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>

#include "absl/strings/str_cat.h"
#include "rxe_user/base/errno_status.h"
#include "wire/packet.h"

namespace rxe_user {
namespace {

constexpr size_t kSlotBytes = 65536;
// Sends gather until they make a call worth while, and not longer: what was
// just written is still in the cache.
constexpr size_t kFlushBytes = 48 << 10;
// Arrivals smaller than this come several in a call.
constexpr size_t kSmallArrival = 16 << 10;
// Quiet sockets are asked at every such call.
constexpr uint32_t kQuietInterval = 8;
// Limits of the kernel: UDP_MAX_SEGMENTS since 6.9, and before.
constexpr int kMaxSegments = 128;
constexpr int kOldMaxSegments = 64;

// The socket, or the system, has no room just now.
bool IsFull(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS ||
         error == ENOMEM || error == EINTR;
}

bool IsNoSegmentation(int error) {
  return error == EINVAL || error == EMSGSIZE || error == EIO ||
         error == EOPNOTSUPP;
}

}  // namespace

absl::Status UdpPort::Open() {
  receive_memory_ = PrefaultedBuffer(kSlots * kSlotBytes);
  send_memory_ = PrefaultedBuffer(kSlots * kSlotBytes);
  if (receive_memory_.bytes().empty() || send_memory_.bytes().empty()) {
    return absl::ResourceExhaustedError("no memory for packet buffers");
  }
  arrivals_.reserve(kSlots);
  free_.reserve(kSlots);
  queued_.reserve(kSlots);
  for (size_t i = 0; i < kSlots; ++i) {
    Incoming& incoming = incoming_[i];
    incoming.buffer =
        receive_memory_.bytes().subspan(i * kSlotBytes, kSlotBytes);
    incoming.vector = {incoming.buffer.data(), incoming.buffer.size()};
    outgoing_[i].buffer =
        send_memory_.bytes().subspan(i * kSlotBytes, kMaxUdpPayload);
    free_.push_back(static_cast<uint8_t>(kSlots - 1 - i));
  }
  const int probe = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return ErrnoStatus(errno, "UDP socket");
  SetMaxSegments(SegmentationSupported(probe) ? kMaxSegments : 1);
  ::close(probe);
  return absl::OkStatus();
}

UdpPort::~UdpPort() {
  if (abandoned_) return;
  for (size_t i = 0; i < receiver_count_; ++i) ::close(receivers_[i].fd);
  for (size_t i = 0; i < sender_count_; ++i) ::close(senders_[i].fd);
}

void UdpPort::AbandonInChild() {
  abandoned_ = true;
  for (size_t i = 0; i < receiver_count_; ++i) ::close(receivers_[i].fd);
  for (size_t i = 0; i < sender_count_; ++i) ::close(senders_[i].fd);
  receive_memory_.Release();
  send_memory_.Release();
}

// --- Sockets.

absl::Status UdpPort::AddReceiver(const LocalAddress& local, int fd) {
  const std::lock_guard<std::mutex> lock(adding_);
  absl::Status status = PrepareReceiver(fd, !local.address.is_v4());
  const size_t count = receiver_count_.load(std::memory_order_relaxed);
  if (status.ok() && count == kMaxSockets) {
    status = absl::ResourceExhaustedError("too many addresses");
  }
  if (status.ok()) {
    Receiver& receiver = receivers_[count];
    receiver.fd = fd;
    receiver.index = RegisterReceiver(fd);
    receiver.local = local;
    receiver.overflow = DropCount(fd);  // under a former owner
    receiver_count_.store(count + 1, std::memory_order_release);
  }
  if (!status.ok()) ::close(fd);
  return status;
}

bool UdpPort::HasReceiver(const wire::IpAddress& address) const {
  const size_t count = receiver_count_.load(std::memory_order_acquire);
  for (size_t i = 0; i < count; ++i) {
    if (receivers_[i].local.address == address) return true;
  }
  return false;
}

std::vector<int> UdpPort::ReceiveDescriptors() const {
  const size_t count = receiver_count_.load(std::memory_order_acquire);
  std::vector<int> descriptors;
  for (size_t i = 0; i < count; ++i) descriptors.push_back(receivers_[i].fd);
  return descriptors;
}

absl::StatusOr<uint16_t> UdpPort::SourcePort(const LocalAddress& local,
                                             uint32_t choice) {
  choice %= kSendersPerAddress;
  const std::lock_guard<std::mutex> lock(adding_);
  const size_t count = sender_count_.load(std::memory_order_relaxed);
  for (size_t i = 0; i < count; ++i) {
    const Sender& sender = senders_[i];
    if (sender.choice == choice && sender.local.address == local.address) {
      return sender.port;
    }
  }
  if (count == kMaxSockets) {
    return absl::ResourceExhaustedError("too many addresses");
  }
  Sender& sender = senders_[count];
  const absl::StatusOr<int> fd = OpenSender(local, &sender.port);
  if (!fd.ok()) return fd.status();
  sender.fd = *fd;
  sender.local = local;
  sender.choice = choice;
  sender_count_.store(count + 1, std::memory_order_release);
  return sender.port;
}

// --- Receive.

std::span<const transport::Train> UdpPort::Receive(bool thorough) {
  arrivals_.clear();
  more_ = false;
  const size_t count = receiver_count_.load(std::memory_order_acquire);
  if (count == 0) return {};
  // The busy socket is asked at every call. Now and then another one comes
  // first, so that a flood at one address does not silence the others.
  const bool turn = ++tick_ % kQuietInterval == 0;
  const size_t first = turn ? hot_ + 1 : hot_;
  const size_t sockets = thorough || turn ? count : 1;
  for (size_t i = 0; i < sockets; ++i) {
    const size_t index = (first + i) % count;
    if (ReceiveFrom(receivers_[index]) != 0) {
      hot_ = index;
      break;
    }
  }
  return arrivals_;
}

size_t UdpPort::ReceiveFrom(Receiver& receiver) {
  Operation operations[kSlots];
  const size_t asked = receiver.ask;
  for (size_t i = 0; i < asked; ++i) {
    Incoming& incoming = incoming_[i];
    incoming.message.msg_name = &incoming.from;
    incoming.message.msg_namelen = sizeof(incoming.from);
    incoming.message.msg_iov = &incoming.vector;
    incoming.message.msg_iovlen = 1;
    incoming.message.msg_control = incoming.control;
    incoming.message.msg_controllen = sizeof(incoming.control);
    incoming.message.msg_flags = 0;
    operations[i] = {&incoming.message, 0};
  }
  ++counters_.rx_calls;
  if (asked == 1) {
    ReceiveByCall(receiver.fd, {operations, 1});
  } else {
    ReceiveSeveral(receiver.fd, receiver.index, {operations, asked});
  }

  size_t got = 0;
  size_t bytes = 0;
  for (size_t i = 0; i < asked; ++i) {
    const int result = operations[i].result;
    if (result == -EAGAIN || result == -EWOULDBLOCK) continue;
    ++got;  // an error is also used up
    if (Deliver(receiver, incoming_[i], result)) {
      bytes += static_cast<size_t>(result);
    }
  }
  more_ = got == asked;
  const bool small = bytes < got * kSmallArrival;
  // One that comes alone, as in a ping-pong, makes the next call no dearer.
  const bool again = more_ && receiver.had_more;
  receiver.had_more = more_;
  receiver.ask = !more_   ? std::max<size_t>(got, 1)
                 : !small ? 1
                 : again  ? std::min(asked * 2, kSlots)
                          : asked;
  return got;
}

bool UdpPort::Deliver(Receiver& receiver, const Incoming& incoming,
                      int result) {
  if (result < 0) return false;
  ++counters_.rx_arrivals;
  const ReceiveControl control = ReadReceiveControl(incoming.message);
  if (control.has_overflow) {
    const uint32_t fresh = control.overflow - receiver.overflow;
    receiver.overflow = control.overflow;
    counters_.rx_overflow += fresh;
    new_overflow_ += fresh;
  }
  if (incoming.message.msg_flags & MSG_TRUNC) {
    ++counters_.rx_truncated;
    return false;
  }
  const size_t size = static_cast<size_t>(result);
  transport::Train arrival;
  arrival.bytes = incoming.buffer.first(size);
  arrival.segment_size = control.segment_size != 0 ? control.segment_size
                                                   : std::max<size_t>(size, 1);
  arrival.source = FromSocketAddress(incoming.from);
  arrival.destination = receiver.local.address;
  arrival.source_port = ntohs(incoming.from.any.sa_family == AF_INET
                                  ? incoming.from.v4.sin_port
                                  : incoming.from.v6.sin6_port);
  arrival.traffic_class = control.traffic_class;
  arrival.hop_limit = control.hop_limit;
  arrivals_.push_back(arrival);
  return true;
}

uint64_t UdpPort::TakeOverflow() { return std::exchange(new_overflow_, 0); }

// --- Transmit.

void UdpPort::SetMaxSegments(int max_segments) {
  max_segments_ = max_segments;
  for (const uint8_t index : free_) {
    outgoing_[index].burst =
        transport::Burst(outgoing_[index].buffer, max_segments);
  }
}

transport::Burst* UdpPort::NextBurst() {
  if (blocked_ || free_.empty()) return nullptr;
  return &outgoing_[free_.back()].burst;
}

UdpPort::Sender* UdpPort::FindSender(const transport::AddressVector& av) {
  const size_t count = sender_count_.load(std::memory_order_acquire);
  for (size_t i = 0; i < count; ++i) {
    Sender& sender = senders_[i];
    if (sender.port == av.source_port && sender.local.address == av.source) {
      return &sender;
    }
  }
  return nullptr;
}

void UdpPort::Prepare(Outgoing& slot, Sender& sender) {
  const transport::Flow& flow = *slot.burst.flow();
  if (!sender.defaults) {
    sender.defaults = SetSendDefaults(sender.fd, flow.av);
  }
  const size_t segment_size =
      slot.burst.segments() > 1 ? slot.burst.segment_size() : 0;
  slot.fd = sender.fd;
  slot.sent = 0;
  slot.destination = flow.av.destination;
  slot.icrc = flow.icrc;
  slot.vector = {slot.buffer.data(), slot.burst.bytes().size()};
  slot.message = {};
  slot.message.msg_name = &slot.to;
  slot.message.msg_namelen = ToSocketAddress(
      flow.av.destination, wire::kRoceUdpPort, sender.local.scope_id, &slot.to);
  slot.message.msg_iov = &slot.vector;
  slot.message.msg_iovlen = 1;
  slot.message.msg_controllen =
      WriteSendControl(flow.av, segment_size, *sender.defaults, slot.control);
  slot.message.msg_control =
      slot.message.msg_controllen != 0 ? slot.control : nullptr;
}

void UdpPort::Queue() {
  assert(!free_.empty());
  const uint8_t index = free_.back();
  Outgoing& slot = outgoing_[index];
  Sender* const sender = FindSender(slot.burst.flow()->av);
  if (sender == nullptr) {
    ++counters_.tx_errors;
    return;
  }
  ++counters_.tx_bursts;
  Prepare(slot, *sender);
  free_.pop_back();
  queued_.push_back(index);
  queued_bytes_ += slot.burst.bytes().size();
  if (free_.empty() || queued_bytes_ >= kFlushBytes) Flush();
}

void UdpPort::Flush() {
  const auto begin = queued_.begin();
  const auto end = queued_.end();
  auto kept = begin;  // those before it have to wait
  for (auto next = begin; next != end;) {
    Outgoing& slot = outgoing_[*next];
    // There may be room again by now, but what is behind one that waits stays
    // behind it: the peer would see a gap.
    bool waits = std::any_of(begin, kept, [&](uint8_t index) {
      return outgoing_[index].fd == slot.fd;
    });
    if (!waits && MustGoInParts(slot)) {
      waits = !SendInParts(slot);
    } else if (!waits) {
      const auto last = std::find_if(next, end, [&](uint8_t index) {
        return outgoing_[index].fd != slot.fd ||
               MustGoInParts(outgoing_[index]);
      });
      const size_t sent = Send({next, last});
      for (size_t i = 0; i < sent; ++i) Free(*next++);
      if (sent != 0) continue;
      const int error = errno;
      if (slot.burst.segments() > 1 && IsNoSegmentation(error)) {
        LowerSegmentLimit(slot, error);
        continue;
      }
      waits = IsFull(error);
      if (!waits) CountDrop(error);
    }
    if (waits) {
      *kept++ = *next++;
    } else {
      Free(*next++);
    }
  }
  blocked_ = kept != begin;
  queued_.erase(kept, end);
  queued_bytes_ = 0;
  if (blocked_) ++counters_.tx_blocked;
}

void UdpPort::Free(uint8_t index) {
  outgoing_[index].burst =
      transport::Burst(outgoing_[index].buffer, max_segments_);
  free_.push_back(index);
}

size_t UdpPort::Send(std::span<const uint8_t> slots) {
  mmsghdr messages[kSlots];
  for (size_t i = 0; i < slots.size(); ++i) {
    messages[i] = {outgoing_[slots[i]].message, 0};
  }
  return SendMessages(outgoing_[slots[0]].fd, {messages, slots.size()});
}

bool UdpPort::MustGoInParts(const Outgoing& slot) const {
  return slot.burst.segments() > SegmentLimit(slot.destination);
}

// The kernel may be one that takes fewer segments; or the path takes none.
void UdpPort::LowerSegmentLimit(const Outgoing& slot, int error) {
  if (SegmentLimit(slot.destination) > kOldMaxSegments &&
      slot.burst.segments() > kOldMaxSegments && error == EINVAL) {
    SetMaxSegments(kOldMaxSegments);
  } else {
    segment_limits_[slot.destination] = 1;
  }
}

bool UdpPort::SendInParts(Outgoing& slot) {
  if (slot.sent == 0) ++counters_.tx_split;
  const std::span<uint8_t> bytes = slot.buffer.first(slot.burst.bytes().size());
  const size_t segment_size = slot.burst.segment_size();
  // Segments now have other places in their sends, hence other IP IDs. The
  // control messages keep their order, UDP_SEGMENT first.
  while (slot.sent < bytes.size()) {
    const size_t room =
        segment_size * static_cast<size_t>(SegmentLimit(slot.destination));
    const std::span<uint8_t> part =
        bytes.subspan(slot.sent, std::min(room, bytes.size() - slot.sent));
    uint16_t id = 0;
    for (size_t at = 0; at < part.size(); at += segment_size) {
      slot.icrc->Store(
          part.subspan(at, std::min(segment_size, part.size() - at)), id++);
    }
    slot.vector = {part.data(), part.size()};
    mmsghdr message = {slot.message, 0};
    if (id == 1) {
      const size_t skip = CMSG_SPACE(sizeof(uint16_t));
      message.msg_hdr.msg_controllen -= skip;
      message.msg_hdr.msg_control =
          message.msg_hdr.msg_controllen != 0 ? slot.control + skip : nullptr;
    }
    if (SendMessages(slot.fd, {&message, 1}) == 0) {
      const int error = errno;
      if (IsFull(error)) return false;
      if (id > 1 && IsNoSegmentation(error)) {
        LowerSegmentLimit(slot, error);
        continue;
      }
      CountDrop(error);
    }
    slot.sent += part.size();
  }
  return true;
}

void UdpPort::CountDrop(int error) {
  switch (error) {
    case EMSGSIZE:
      ++counters_.tx_too_long;
      break;
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ENETDOWN:
    case EADDRNOTAVAIL:
      ++counters_.tx_unreachable;
      break;
    default:
      ++counters_.tx_errors;
  }
}

int UdpPort::SegmentLimit(const wire::IpAddress& destination) const {
  if (segment_limits_.empty()) return max_segments_;
  const auto found = segment_limits_.find(destination);
  return found == segment_limits_.end() ? max_segments_ : found->second;
}

// By syscall(2): these functions of the C library are cancellation points,
// which makes them look twice in each call whether to end the thread. Nobody is
// cancelled under the lane's lock (adaptive_lock.h).
size_t UdpPort::SendMessages(int fd, std::span<mmsghdr> messages) {
  ++counters_.tx_calls;
  const long sent = ::syscall(SYS_sendmmsg, fd, messages.data(),
                              messages.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  return static_cast<size_t>(std::max(sent, 0L));
}

void UdpPort::ReceiveByCall(int fd, std::span<Operation> operations) {
  Operation& first = operations[0];
  if (operations.size() == 1) {
    const long received =
        ::syscall(SYS_recvmsg, fd, first.message, MSG_DONTWAIT);
    first.result = received < 0 ? -errno : static_cast<int>(received);
    return;
  }
  mmsghdr messages[kSlots];
  for (size_t i = 0; i < operations.size(); ++i) {
    messages[i] = {*operations[i].message, 0};
    operations[i].result = -EAGAIN;
  }
  const long received = ::syscall(SYS_recvmmsg, fd, messages, operations.size(),
                                  MSG_DONTWAIT, nullptr);
  if (received < 0) first.result = -errno;
  for (long i = 0; i < received; ++i) {
    Operation& operation = operations[static_cast<size_t>(i)];
    *operation.message = messages[i].msg_hdr;
    operation.result = static_cast<int>(messages[i].msg_len);
  }
}

}  // namespace rxe_user
