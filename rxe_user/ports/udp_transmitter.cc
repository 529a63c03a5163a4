#include "rxe_user/ports/udp_transmitter.h"

#include <errno.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/udp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <new>
#include <string>

#include "absl/strings/str_cat.h"
#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/public_addresses.h"
#include "rxe_user/base/warn_once.h"
#include "wire/packet.h"

namespace rxe_user {
namespace {

// Bursts are gathered up to this many bytes: enough to amortize a call, and
// still in the cache.
constexpr size_t kFlushBytes = 48 << 10;
// The same for sender_, which has no more than a call to save: two large
// bursts.
constexpr size_t kFlushBytesThrough = 96 << 10;
// Kernel limits: UDP_MAX_SEGMENTS since 6.9, and before.
constexpr int kMaxSegments = 128;
constexpr int kOldMaxSegments = 64;
// Bursts between tries of a segmented send to a destination that refused them:
// at first, and at most.
constexpr uint32_t kFirstRetry = 256;
constexpr uint32_t kLastRetry = 64 << 10;
// Hop marks are below this. A packet keeps a hop limit that suffices for any
// route: those with less than twice as much are not marked.
constexpr uint8_t kHopMarks = 32;

// The socket or the system has no buffer space now.
bool IsFull(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS ||
         error == ENOMEM || error == EINTR;
}

bool IsNoSegmentation(int error) {
  return error == EINVAL || error == EMSGSIZE || error == EIO ||
         error == EOPNOTSUPP;
}

// For what the system reports, because of an ICMP message or its own interface.
// Packets that are lost silently cause no warning.
void WarnTooLong(const wire::IpAddress& destination, size_t udp_payload) {
  const size_t ip_packet =
      udp_payload + sizeof(udphdr) +
      (destination.is_v4() ? sizeof(iphdr) : sizeof(ip6_hdr));
  const std::string to = destination.ToString();
  WarnOnceAbout(
      "too long to " + to,
      absl::StrCat("packets of ", ip_packet, " bytes to ", to,
                   " are too long for a link on the way, and dropped: use a "
                   "smaller path MTU (perftest: -m), or a smaller MTU of the "
                   "interface"));
}

absl::Status TooManyAddresses() {
  return absl::ResourceExhaustedError("too many source addresses at once");
}

}  // namespace

absl::Status UdpTransmitter::Open() {
  memory_ = MappedMemory::Prefaulted(kBuffers * kDatagramBytes);
  if (memory_.bytes().empty()) {
    return absl::ResourceExhaustedError("no memory for packet buffers");
  }
  free_.reserve(kBuffers);
  queued_.reserve(kBuffers);
  for (size_t i = 0; i < kBuffers; ++i) {
    outgoing_[i].buffer =
        memory_.bytes().subspan(i * kDatagramBytes, kMaxUdpPayload);
    free_.push_back(static_cast<uint8_t>(kBuffers - 1 - i));
  }
  const int probe = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return ErrnoStatus(errno, "UDP socket");
  max_segments_ = SegmentationSupported(probe) ? kMaxSegments : 1;
  ::close(probe);
  return absl::OkStatus();
}

UdpTransmitter::~UdpTransmitter() {
  if (abandoned_) return;
  for (size_t i = 0; i < socket_count_; ++i) ::close(sockets_[i].fd);
}

void UdpTransmitter::AbandonInChild() {
  abandoned_ = true;
  for (size_t i = 0; i < socket_count_; ++i) ::close(sockets_[i].fd);
  memory_.Release();
}

absl::StatusOr<uint16_t> UdpTransmitter::SourcePort(const LocalAddress& local,
                                                    uint32_t choice,
                                                    int receiver) {
  choice = receiver < 0 ? choice % kSocketsPerAddress : 0;
  for (size_t i = 0; i < socket_count_; ++i) {
    const Socket& socket = sockets_[i];
    if (socket.choice == choice && socket.local.address == local.address) {
      return socket.port;
    }
  }
  if (socket_count_ == kMaxSockets) return TooManyAddresses();
  uint16_t port = wire::kRoceUdpPort;
  const absl::StatusOr<int> fd = receiver < 0
                                     ? OpenSender(local, &port)
                                     : SendFromReceiver(receiver, local);
  if (!fd.ok()) return fd.status();
  AddSocket(*fd, local, port, choice);
  return port;
}

absl::Status UdpTransmitter::OpenSourcePort(const LocalAddress& local,
                                            uint16_t port) {
  for (size_t i = 0; i < socket_count_; ++i) {
    if (sockets_[i].port == port &&
        sockets_[i].local.address == local.address) {
      return absl::OkStatus();
    }
  }
  if (socket_count_ == kMaxSockets) return TooManyAddresses();
  const absl::StatusOr<int> fd = OpenSenderOn(local, port);
  if (!fd.ok()) return fd.status();
  AddSocket(*fd, local, port, kOfProgram);
  return absl::OkStatus();
}

void UdpTransmitter::AddSocket(int fd, const LocalAddress& local, uint16_t port,
                               uint32_t choice) {
  sockets_[socket_count_++] = {.fd = fd,
                               .local = local,
                               .bound = BoundAddress(local.address),
                               .choice = choice,
                               .port = port};
}

size_t UdpTransmitter::CloseUnused(const Port::ForEachUsed& for_each_used) {
  for (size_t i = 0; i < socket_count_; ++i) {
    // A queued burst's flow may have ended.
    sockets_[i].used = std::any_of(
        queued_.begin(), queued_.end(),
        [&](uint8_t index) { return outgoing_[index].fd == sockets_[i].fd; });
  }
  for_each_used([this](const transport::AddressVector& av) {
    if (Socket* const socket = FindSocket(av)) socket->used = true;
  });
  size_t kept = 0;
  for (size_t i = 0; i < socket_count_; ++i) {
    if (sockets_[i].used) {
      sockets_[kept++] = sockets_[i];
    } else {
      ::close(sockets_[i].fd);
    }
  }
  const size_t closed = socket_count_ - kept;
  socket_count_ = kept;
  return closed;
}

// The segment limit of a known destination applies from here on. Only bursts
// that were filled before it was lowered are sent in parts.
transport::Burst* UdpTransmitter::Begin(const transport::Flow& flow) {
  if (blocked_ || free_.empty()) return nullptr;
  Outgoing& outgoing = outgoing_[free_.back()];
  outgoing.burst =
      transport::Burst(outgoing.buffer, SegmentLimit(flow.av.destination));
  outgoing.burst.Begin(&flow);
  if (marks_bursts_ && flow.av.hop_limit_on_wire() >= 2 * kHopMarks) {
    last_mark_ = (last_mark_ + 1) % kHopMarks;
    outgoing.burst.set_hop_mark(last_mark_);
  }
  return &outgoing.burst;
}

UdpTransmitter::Socket* UdpTransmitter::FindSocket(
    const transport::AddressVector& av) {
  for (size_t i = 0; i < socket_count_; ++i) {
    Socket& socket = sockets_[i];
    if (socket.port == av.source_port && socket.local.address == av.source) {
      return &socket;
    }
  }
  return nullptr;
}

void UdpTransmitter::Prepare(Outgoing& outgoing, Socket& socket) {
  const transport::Flow& flow = *outgoing.burst.flow();
  if (!socket.defaults) {
    socket.defaults = SetSendDefaults(socket.fd, flow.av);
  }
  const size_t segment_size =
      outgoing.burst.segments() > 1 ? outgoing.burst.segment_size() : 0;
  outgoing.fd = socket.fd;
  outgoing.sent = 0;
  // A packet of this host to its own public address stays on the host.
  outgoing.destination = flow.av.destination == socket.local.address
                             ? socket.bound
                             : flow.av.destination;
  outgoing.icrc = flow.icrc;
  outgoing.vector = {outgoing.buffer.data(), outgoing.burst.bytes().size()};
  outgoing.message = {};
  outgoing.message.msg_name = &outgoing.to;
  outgoing.message.msg_namelen =
      ToSocketAddress(outgoing.destination, flow.destination_port,
                      socket.local.scope_id, &outgoing.to);
  outgoing.message.msg_iov = &outgoing.vector;
  outgoing.message.msg_iovlen = 1;
  outgoing.message.msg_controllen =
      WriteSendControl(flow.av, segment_size, *socket.defaults,
                       outgoing.control, outgoing.burst.hop_mark());
  outgoing.message.msg_control =
      outgoing.message.msg_controllen != 0 ? outgoing.control : nullptr;
}

void UdpTransmitter::Queue() {
  assert(!free_.empty());
  const uint8_t index = free_.back();
  Outgoing& outgoing = outgoing_[index];
  Socket* const socket = FindSocket(outgoing.burst.flow()->av);
  if (socket == nullptr) {
    ++counters_.tx_errors;
    return;
  }
  ++counters_.tx_bursts;
  if (!unsegmented_.empty()) CountBurst(outgoing.burst.flow()->av.destination);
  Prepare(outgoing, *socket);
  free_.pop_back();
  queued_.push_back(index);
  const size_t bytes = outgoing.burst.bytes().size();
  queued_bytes_ += bytes;
  if (sender_ != nullptr) sender_->OnQueued(bytes);
  const size_t enough =
      sender_ != nullptr && sender_->sends() ? kFlushBytesThrough : kFlushBytes;
  if (free_.empty() || queued_bytes_ >= enough) Flush();
}

void UdpTransmitter::Flush() {
  const auto begin = queued_.begin();
  const auto end = queued_.end();
  auto kept = begin;  // those before it must wait
  by_sender_ = sender_ != nullptr && sender_->sends();
  if (by_sender_) {
    SendAll(queued_);
    by_sender_ = sender_->sends();  // false: it has sent nothing
  }
  for (auto next = begin; next != end;) {
    Outgoing& outgoing = outgoing_[*next];
    // There may be space by now, but bursts after a waiting one of the same
    // socket keep their order; the peer would see a gap.
    bool waits = std::any_of(begin, kept, [&](uint8_t index) {
      return outgoing_[index].fd == outgoing.fd;
    });
    if (!waits && MustGoInParts(outgoing)) {
      waits = !SendInParts(outgoing);
    } else if (!waits) {
      const auto last = std::find_if(next, end, [&](uint8_t index) {
        return outgoing_[index].fd != outgoing.fd ||
               MustGoInParts(outgoing_[index]);
      });
      const size_t sent = Send({next, last});
      for (size_t i = 0; i < sent; ++i) {
        if (!unsegmented_.empty()) RaiseSegmentLimit(outgoing_[*next]);
        free_.push_back(*next++);
      }
      if (sent != 0) continue;
      const int error = errno;
      if (outgoing.burst.segments() > 1 && IsNoSegmentation(error)) {
        if (LowerSegmentLimit(outgoing, error)) continue;
      }
      waits = IsFull(error);
      if (!waits) CountDrop(outgoing, error);
    }
    if (waits) {
      *kept++ = *next++;
    } else {
      free_.push_back(*next++);
    }
  }
  blocked_ = kept != begin;
  queued_.erase(kept, end);
  queued_bytes_ = 0;
  if (blocked_) ++counters_.tx_blocked;
}

size_t UdpTransmitter::Send(std::span<const uint8_t> indices) {
  if (by_sender_) return TakeResults(indices);
  mmsghdr messages[kBuffers];
  for (size_t i = 0; i < indices.size(); ++i) {
    messages[i] = {outgoing_[indices[i]].message, 0};
  }
  return Call(outgoing_[indices[0]].fd, {messages, indices.size()});
}

// Grouped by socket, each group in order. Bursts after one that must go in
// parts wait for that one.
void UdpTransmitter::SendAll(std::span<const uint8_t> indices) {
  MessageSender::Message messages[kBuffers];
  uint8_t sources[kBuffers];
  size_t count = 0;
  for (size_t i = 0; i < indices.size(); ++i) {
    const int fd = outgoing_[indices[i]].fd;
    const bool seen =
        std::any_of(indices.begin(), indices.begin() + i,
                    [&](uint8_t index) { return outgoing_[index].fd == fd; });
    if (seen) continue;
    bool waits = false;
    for (const uint8_t index : indices.subspan(i)) {
      Outgoing& outgoing = outgoing_[index];
      if (outgoing.fd != fd) continue;
      outgoing.result = MessageSender::Message::kNotTried;
      waits = waits || MustGoInParts(outgoing);
      if (waits) continue;
      messages[count] = {fd, &outgoing.message,
                         MessageSender::Message::kNotTried};
      sources[count++] = index;
    }
  }
  if (count == 0) return;
  sender_->Send({messages, count});
  for (size_t i = 0; i < count; ++i) {
    outgoing_[sources[i]].result = messages[i].error;
  }
}

size_t UdpTransmitter::TakeResults(std::span<const uint8_t> indices) {
  constexpr int kNotTried = MessageSender::Message::kNotTried;
  int& first = outgoing_[indices[0]].result;
  if (first == kNotTried) SendAll(indices);
  size_t sent = 0;
  while (sent < indices.size() && outgoing_[indices[sent]].result == 0) {
    outgoing_[indices[sent++]].result = kNotTried;
  }
  if (sent == 0) errno = first == kNotTried ? ENOMEM : first;
  if (sent == 0) first = kNotTried;
  return sent;
}

bool UdpTransmitter::MustGoInParts(const Outgoing& outgoing) const {
  // Result 0: sender_ sent the burst before the limit was lowered.
  return outgoing.result != 0 &&
         outgoing.burst.segments() > SegmentLimit(outgoing.destination);
}

// The kernel may allow fewer segments, or the path none, or nothing at all.
bool UdpTransmitter::LowerSegmentLimit(const Outgoing& outgoing, int error) {
  if (SegmentLimit(outgoing.destination) > kOldMaxSegments &&
      outgoing.burst.segments() > kOldMaxSegments && error == EINVAL) {
    max_segments_ = kOldMaxSegments;
    segment_limit_uncertain_ = true;
    return true;
  }
  ResolveSegmentLimit(false);
  auto found = unsegmented_.find(outgoing.destination);
  if (found == unsegmented_.end()) {
    try {
      unsegmented_.emplace(outgoing.destination,
                           Unsegmented{kFirstRetry, kFirstRetry});
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }
  Unsegmented& limit = found->second;
  if (limit.left != 0) return true;  // known already
  limit.interval = std::min(limit.interval * 2, kLastRetry);
  limit.left = limit.interval;
  return true;
}

void UdpTransmitter::ResolveSegmentLimit(bool taken) {
  if (!segment_limit_uncertain_) return;
  segment_limit_uncertain_ = false;
  if (!taken) max_segments_ = kMaxSegments;
}

void UdpTransmitter::RaiseSegmentLimit(const Outgoing& outgoing) {
  if (outgoing.burst.segments() > 1) unsegmented_.erase(outgoing.destination);
}

void UdpTransmitter::CountBurst(const wire::IpAddress& destination) {
  const auto found = unsegmented_.find(destination);
  if (found != unsegmented_.end() && found->second.left != 0) {
    --found->second.left;
  }
}

bool UdpTransmitter::SendInParts(Outgoing& outgoing) {
  if (outgoing.sent == 0) ++counters_.tx_split;
  const std::span<uint8_t> bytes =
      outgoing.buffer.first(outgoing.burst.bytes().size());
  const size_t segment_size = outgoing.burst.segment_size();
  // Segments are at other positions in their sends now, and so have other IP
  // IDs. The control messages keep their order, UDP_SEGMENT first.
  while (outgoing.sent < bytes.size()) {
    const size_t room =
        segment_size * static_cast<size_t>(SegmentLimit(outgoing.destination));
    const std::span<uint8_t> part = bytes.subspan(
        outgoing.sent, std::min(room, bytes.size() - outgoing.sent));
    uint16_t id = 0;
    for (size_t at = 0; at < part.size(); at += segment_size) {
      outgoing.icrc->Store(
          part.subspan(at, std::min(segment_size, part.size() - at)), id++);
    }
    outgoing.vector = {part.data(), part.size()};
    mmsghdr message = {outgoing.message, 0};
    if (id == 1) {
      const size_t skip = CMSG_SPACE(sizeof(uint16_t));
      message.msg_hdr.msg_controllen -= skip;
      message.msg_hdr.msg_control = message.msg_hdr.msg_controllen != 0
                                        ? outgoing.control + skip
                                        : nullptr;
    }
    if (Call(outgoing.fd, {&message, 1}) == 0) {
      const int error = errno;
      if (IsFull(error)) return false;
      if (id > 1 && IsNoSegmentation(error) &&
          LowerSegmentLimit(outgoing, error)) {
        continue;
      }
      CountDrop(outgoing, error);
    } else if (id > 1) {
      ResolveSegmentLimit(true);
    }
    outgoing.sent += part.size();
  }
  ResolveSegmentLimit(false);
  return true;
}

void UdpTransmitter::CountDrop(const Outgoing& outgoing, int error) {
  switch (error) {
    case EMSGSIZE:
      ++counters_.tx_too_long;
      WarnTooLong(outgoing.destination, outgoing.burst.segment_size());
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

int UdpTransmitter::SegmentLimit(const wire::IpAddress& destination) const {
  if (unsegmented_.empty()) return max_segments_;
  const auto found = unsegmented_.find(destination);
  return found == unsegmented_.end() || found->second.left == 0 ? max_segments_
                                                                : 1;
}

// By syscall(2): these functions of the C library are cancellation points,
// which costs two checks in each call. Threads are not cancelled under the
// lane's lock (adaptive_lock.h).
size_t UdpTransmitter::Call(int fd, std::span<mmsghdr> messages) {
  ++counters_.tx_calls;
  const long sent = ::syscall(SYS_sendmmsg, fd, messages.data(),
                              messages.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  return static_cast<size_t>(std::max(sent, 0L));
}

}  // namespace rxe_user
