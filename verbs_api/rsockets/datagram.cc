#include "verbs_api/rsockets/datagram.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace rsockets {
namespace {

// At this number of destinations all are forgotten. They are learned again from
// the next datagrams, which go by UDP until then.
constexpr size_t kMaxDestinations = 4096;
constexpr size_t kMaxWaiting = 1024;
constexpr size_t kMaxUdp = 1 << 16;
// The most datagrams that a call reads from the UDP socket, so that a fast
// sender does not hold it up.
constexpr int kMaxReads = 64;

}  // namespace

int Datagram::Create(int domain, std::shared_ptr<Socket>* out) {
  std::shared_ptr<Datagram> socket(new Datagram(domain, Settings::Default()));
  if (const int error = socket->Open()) return error;
  socket->udp_.Reset(
      ::socket(domain, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket->udp_.valid()) return -errno;
  if (const int error = socket->Watch(socket->udp_.get())) return error;
  socket->packet_.resize(kMaxUdp);
  *out = std::move(socket);
  return 0;
}

Datagram::~Datagram() {
  if (!is_ours()) {
    for (std::unique_ptr<DatagramQp>& qp : qps_) {
      static_cast<void>(qp.release());
    }
    return;
  }
  ForgetDestinations();
}

void Datagram::ForgetDestinations() {
  for (auto& [key, destination] : destinations_) {
    if (destination.path != nullptr) ibv_destroy_ah(destination.path);
  }
  destinations_.clear();
}

int Datagram::Bind(const sockaddr* address, socklen_t length) {
  return bind(udp_.get(), address, length) == 0 ? 0 : -errno;
}

int Datagram::Connect(const sockaddr* address, socklen_t length) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (connect(udp_.get(), address, length) != 0) return -errno;
  // Read back with the interface, which the caller may omit if the socket is
  // bound to one.
  sockaddr_storage peer;
  length = sizeof(peer);
  if (getpeername(udp_.get(), reinterpret_cast<sockaddr*>(&peer), &length) !=
      0) {
    peer_.reset();  // AF_UNSPEC removes the peer
    return 0;
  }
  peer_ = DatagramAddress::Of(reinterpret_cast<sockaddr*>(&peer));
  return 0;
}

int Datagram::Shutdown(int how) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!peer_.has_value()) return -ENOTCONN;
  if (how != SHUT_WR) read_shut_ = true;
  if (how != SHUT_RD) write_shut_ = true;
  WakeAll(nullptr);
  return 0;
}

void Datagram::Close(Clock::time_point begin) {
  std::unique_lock<std::mutex> lock(mutex_);
  // Sent data leaves before the queue pairs are destroyed.
  Await(lock, false, begin + std::chrono::seconds(1), [&] {
    return std::all_of(qps_.begin(), qps_.end(),
                       [](const auto& qp) { return qp->all_sent(); });
  });
  closed_ = true;
  WakeAll(nullptr);
}

int Datagram::LocalAddress(sockaddr_storage* out) {
  socklen_t length = sizeof(*out);
  return getsockname(udp_.get(), reinterpret_cast<sockaddr*>(out), &length) == 0
             ? 0
             : -errno;
}

int Datagram::PeerAddress(sockaddr_storage* out) {
  socklen_t length = sizeof(*out);
  return getpeername(udp_.get(), reinterpret_cast<sockaddr*>(out), &length) == 0
             ? 0
             : -errno;
}

int Datagram::Apply(int level, int name, int value) {
  if (name == SO_KEEPALIVE && level == SOL_SOCKET) return 0;
  if (level == IPPROTO_TCP) return 0;
  return setsockopt(udp_.get(), level, name, &value, sizeof(value)) == 0
             ? 0
             : -errno;
}

// The source address for datagrams to `to`: the bound address, or the one that
// the kernel would choose.
int Datagram::LocalFor(const DatagramAddress& to, DatagramAddress* local) {
  sockaddr_storage storage;
  socklen_t length = sizeof(storage);
  auto* const address = reinterpret_cast<sockaddr*>(&storage);
  if (getsockname(udp_.get(), address, &length) != 0) return errno;
  *local = DatagramAddress::Of(address);
  if (!local->is_wildcard()) return 0;
  const uint16_t port = local->port;
  const rxe_user::UniqueFd probe(
      ::socket(to.family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  length = to.Fill(&storage);
  if (!probe.valid() || connect(probe.get(), address, length) != 0) {
    return errno;
  }
  length = sizeof(storage);
  if (getsockname(probe.get(), address, &length) != 0) return errno;
  *local = DatagramAddress::Of(address);
  local->port = port;
  return 0;
}

// The interface of the link-local address that the socket is bound to, or 0.
uint32_t Datagram::BoundScope() {
  sockaddr_storage local;
  if (LocalAddress(&local) != 0) return 0;
  return DatagramAddress::Of(reinterpret_cast<sockaddr*>(&local)).scope_id;
}

DatagramQp* Datagram::QpFor(const DatagramAddress& local) {
  for (const std::unique_ptr<DatagramQp>& qp : qps_) {
    if (qp->local().Key() == local.Key()) return qp.get();
  }
  std::unique_ptr<DatagramQp> qp;
  if (DatagramQp::Create(local, settings_, &qp) != 0) return nullptr;
  if (Watch(qp->completion_fd()) != 0) return nullptr;
  qp->Arm();
  qps_.push_back(std::move(qp));
  return qps_.back().get();
}

Datagram::Destination* Datagram::FindDestination(const DatagramAddress& to,
                                                 int* error) {
  const auto found = destinations_.find(to.Key());
  if (found != destinations_.end()) return &found->second;
  // An unbound socket gets its port by sending. The header carries that port.
  sockaddr_storage storage;
  socklen_t length = sizeof(storage);
  auto* const address = reinterpret_cast<sockaddr*>(&storage);
  if (getsockname(udp_.get(), address, &length) == 0 &&
      DatagramAddress::Of(address).port == 0) {
    DatagramAddress any;
    any.family = static_cast<sa_family_t>(domain());
    length = any.Fill(&storage);
    if (bind(udp_.get(), address, length) != 0) {
      *error = errno;
      return nullptr;
    }
  }
  DatagramAddress local;
  *error = LocalFor(to, &local);
  if (*error != 0) return nullptr;
  if (destinations_.size() >= kMaxDestinations) ForgetDestinations();
  Destination& destination = destinations_[to.Key()];
  destination.address = to;
  destination.qp = QpFor(local);
  return &destination;
}

void Datagram::Learn(Destination& destination, uint32_t qpn) {
  if (destination.qp == nullptr || qpn == 0) return;
  destination.qpn = qpn;
  if (destination.path == nullptr) {
    destination.path = destination.qp->CreatePath(destination.address);
  }
}

bool Datagram::IsWanted(const DatagramAddress& from) const {
  return !peer_.has_value() || peer_->Key() == from.Key();
}

ssize_t Datagram::SendUdp(const Destination& to, UdpOp op, IovCursor data,
                          int flags) {
  UdpHeader header = {};
  header.op = op;
  if (to.qp != nullptr) {
    header.qpn = to.qp->qpn();
    header.address = to.qp->local();
  } else {
    header.address.family = to.address.family;
  }
  const HeaderBytes bytes = Encode(header);
  std::vector<uint8_t> packet(bytes.length + data.left());
  std::memcpy(packet.data(), bytes.bytes.data(), bytes.length);
  data.CopyTo(packet.data() + bytes.length, data.left());
  sockaddr_storage address;
  const socklen_t length = to.address.Fill(&address);
  // With an explicit address, even after rconnect: it may be another peer
  // (udp(7)).
  const ssize_t n = sendto(udp_.get(), packet.data(), packet.size(), flags,
                           reinterpret_cast<sockaddr*>(&address), length);
  return n < 0 ? -errno : n - static_cast<ssize_t>(bytes.length);
}

int Datagram::AwaitUdpSpace(std::unique_lock<std::mutex>& lock,
                            const Deadline& deadline) {
  pollfd fd = {.fd = udp_.get(), .events = POLLOUT, .revents = 0};
  lock.unlock();
  const int n = poll(&fd, 1, PollTimeout(deadline));
  const int error = errno;
  lock.lock();
  if (closed_) return -EBADF;
  if (n < 0) return -error;
  return n == 0 ? -EAGAIN : 0;
}

void Datagram::OnUdp(std::span<const uint8_t> packet,
                     const DatagramAddress& from) {
  size_t length = 0;
  const std::optional<UdpHeader> header = ParseUdpHeader(packet, &length);
  if (!header.has_value() || !IsWanted(from)) return;
  int error = 0;
  Destination* const destination = FindDestination(from, &error);
  if (destination == nullptr) return;
  Learn(*destination, header->qpn);
  if (header->op != UdpOp::kData) return;
  SendUdp(*destination, UdpOp::kControl, IovCursor(nullptr, 0), 0);
  if (waiting_.size() >= kMaxWaiting) return;
  const auto data = packet.subspan(length);
  waiting_.push_back({.qp = nullptr,
                      .slot = 0,
                      .offset = 0,
                      .length = static_cast<uint32_t>(data.size()),
                      .bytes = {data.begin(), data.end()},
                      .from = from});
}

bool Datagram::ReadUdp() {
  bool any = false;
  for (int i = 0; i < kMaxReads; ++i) {
    sockaddr_storage storage;
    socklen_t length = sizeof(storage);
    auto* const address = reinterpret_cast<sockaddr*>(&storage);
    const ssize_t n = recvfrom(udp_.get(), packet_.data(), packet_.size(),
                               MSG_DONTWAIT, address, &length);
    if (n < 0) {
      // An ICMP error for an earlier datagram.
      if (errno == EINTR) continue;
      if (errno != EAGAIN) error_ = errno;
      return any;
    }
    any = true;
    OnUdp({packet_.data(), static_cast<size_t>(n)},
          DatagramAddress::Of(address));
  }
  return any;
}

void Datagram::OnMessage(DatagramQp& qp, const DatagramQp::Received& received) {
  size_t length = 0;
  std::optional<DatagramAddress> from =
      ParseSource({qp.Message(received.slot), received.length}, &length);
  if (from.has_value() && from->is_link_local()) {
    from->scope_id = qp.local().scope_id;  // on the same link
  }
  // The header is not trusted: the address in it must be the packet's source
  // GID. An honest sender's is, since its queue pair is bound to that address.
  // This holds where addresses are translated, too (docs/nat.md).
  if (!from.has_value() || !IsWanted(*from) ||
      !qp.CameFrom(received.slot, *from)) {
    qp.PostReceive(received.slot);
    return;
  }
  waiting_.push_back({.qp = &qp,
                      .slot = received.slot,
                      .offset = static_cast<uint32_t>(length),
                      .length = received.length - static_cast<uint32_t>(length),
                      .bytes = {},
                      .from = *from});
}

bool Datagram::Progress() {
  bool any = false;
  for (const std::unique_ptr<DatagramQp>& qp : qps_) {
    received_.clear();
    any |= qp->Poll(&received_);
    for (const DatagramQp::Received& received : received_) {
      OnMessage(*qp, received);
    }
  }
  return any;
}

void Datagram::Arm() {
  for (const std::unique_ptr<DatagramQp>& qp : qps_) qp->Arm();
}

bool Datagram::Drain() {
  bool any = ReadUdp();
  for (const std::unique_ptr<DatagramQp>& qp : qps_) any |= qp->Drain();
  return any;
}

short Datagram::Ready() {
  short ready = 0;
  if (!waiting_.empty() || read_shut_) ready |= POLLIN | POLLRDNORM;
  if (error_ != 0) ready |= POLLERR;
  if (write_shut_ || std::all_of(qps_.begin(), qps_.end(), [](const auto& qp) {
        return qp->CanSend();
      })) {
    ready |= POLLOUT | POLLWRNORM;
  }
  return ready;
}

ssize_t Datagram::Send(IovCursor data, int flags, const sockaddr* to,
                       socklen_t) {
  if ((flags & MSG_OOB) != 0) return -EOPNOTSUPP;
  std::unique_lock<std::mutex> lock(mutex_);
  if (closed_) return -EBADF;
  if (data.left() >= kMaxUdp) return -EMSGSIZE;
  if (write_shut_) return -EPIPE;
  if (to == nullptr && !peer_.has_value()) return -EDESTADDRREQ;
  DatagramAddress address = to != nullptr ? DatagramAddress::Of(to) : *peer_;
  if (address.is_link_local() && address.scope_id == 0) {
    address.scope_id = BoundScope();
  }
  const Deadline deadline = After(options_.send_timeout);
  int error = 0;
  Destination* destination = FindDestination(address, &error);
  if (destination == nullptr) return -error;
  // The reply to the first datagram may have arrived.
  if (destination->path == nullptr) {
    ReadUdp();
    destination = FindDestination(address, &error);
    if (destination == nullptr) return -error;
  }
  DatagramQp* const qp = destination->qp;
  if (destination->path == nullptr || data.left() > qp->max_data()) {
    ssize_t n;
    while ((n = SendUdp(*destination, UdpOp::kData, data, 0)) == -EAGAIN &&
           !nonblocking(flags)) {
      error = AwaitUdpSpace(lock, deadline);
      if (error != 0) return error;
      destination = FindDestination(address, &error);
      if (destination == nullptr) return -error;
    }
    return n;
  }
  if (!qp->CanSend()) {
    error = Await(lock, nonblocking(flags), deadline,
                  [&] { return qp->CanSend(); });
    if (error != 0) return error;
    destination = FindDestination(address, &error);
    if (destination == nullptr || destination->path == nullptr) return -EAGAIN;
  }
  const auto length = static_cast<ssize_t>(data.left());
  error = qp->Send(data, destination->path, destination->qpn);
  return error != 0 ? -error : length;
}

ssize_t Datagram::Receive(IovCursor data, int flags, sockaddr* from,
                          socklen_t* from_length) {
  if ((flags & MSG_OOB) != 0) return -EOPNOTSUPP;
  std::unique_lock<std::mutex> lock(mutex_);
  if (const int error = Await(
          lock, nonblocking(flags), After(options_.receive_timeout),
          [&] { return !waiting_.empty() || read_shut_ || error_ != 0; })) {
    return error;
  }
  if (waiting_.empty()) return -TakeError();
  const Waiting& first = waiting_.front();
  const uint8_t* const bytes =
      first.qp != nullptr ? first.qp->Message(first.slot) : first.bytes.data();
  const size_t length = std::min<size_t>(data.left(), first.length);
  data.CopyFrom(bytes + first.offset, length);
  if (from != nullptr && from_length != nullptr) {
    sockaddr_storage storage;
    const socklen_t size = first.from.Fill(&storage);
    std::memcpy(from, &storage, std::min(*from_length, size));
    *from_length = size;
  }
  const ssize_t result = static_cast<ssize_t>(
      (flags & MSG_TRUNC) != 0 ? size_t{first.length} : length);
  if ((flags & MSG_PEEK) == 0) {
    if (first.qp != nullptr) first.qp->PostReceive(first.slot);
    waiting_.pop_front();
  }
  return result;
}

}  // namespace rsockets
