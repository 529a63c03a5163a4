#include "rxe_user/cm/cm_sockets.h"

#include <linux/errqueue.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <span>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/high_fd.h"
#include "rxe_user/base/nat_routes.h"
#include "rxe_user/base/public_addresses.h"
#include "rxe_user/base/random.h"
#include "rxe_user/ports/udp_socket.h"
#include "wire/packet.h"

namespace rxe_user {
namespace {

constexpr int kReadBatch = 64;
// A datagram of this size or more is not a MAD.
constexpr size_t kReadBytes = 2 * transport::cm::kMadPacketSize;

// Makes the system report datagrams that were rejected by ICMP.
void WantErrors(int fd, bool v6) {
  const int one = 1;
  (void)::setsockopt(fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP,
                     v6 ? IPV6_RECVERR : IP_RECVERR, &one, sizeof(one));
}

bool IsPortUnreachable(const msghdr& message) {
  for (const cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr;
       c = CMSG_NXTHDR(const_cast<msghdr*>(&message),
                       const_cast<cmsghdr*>(c))) {
    const bool is_error =
        (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_RECVERR) ||
        (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_RECVERR);
    if (!is_error) continue;
    sock_extended_err error;
    std::memcpy(&error, CMSG_DATA(c), sizeof(error));
    return error.ee_errno == ECONNREFUSED;
  }
  return false;
}

}  // namespace

CmSockets::CmSockets(transport::PacketObserver* observer)
    : ForkGuard(ForkLevel::kDescriptors),
      observer_(observer),
      psn_(SecureRandom32()) {
  EnterForkGuard();
}

CmSockets::~CmSockets() { LeaveForkGuard(); }

void CmSockets::AfterForkInChild() {
  bell_.Reset();
  watch_.Reset();
  addresses_.clear();
  mutex_.unlock();
}

absl::Status CmSockets::OpenBell() {
  UniqueFd fd(MoveHigh(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
  if (!fd.valid()) return ErrnoStatus(errno, "eventfd");
  const std::lock_guard lock(mutex_);
  bell_ = std::move(fd);
  return absl::OkStatus();
}

void CmSockets::Ring() {
  const uint64_t one = 1;
  (void)!::write(bell_.get(), &one, sizeof(one));
}

void CmSockets::Silence() {
  uint64_t count;
  (void)!::read(bell_.get(), &count, sizeof(count));
}

void CmSockets::OpenWatch() {
  if (watch() >= 0) return;
  // The kernel puts at most this much into one message.
  watch_bytes_.resize(32 << 10);
  UniqueFd fd(MoveHigh(::socket(
      AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE)));
  sockaddr_nl name{};
  name.nl_family = AF_NETLINK;
  name.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
  if (!fd.valid() || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&name),
                            sizeof(name)) != 0) {
    return;
  }
  // Reads the current state, which is not reported as a change.
  std::vector<LinkWatch::Change> none;
  missed_ = !links_.ReadAll(&none);
  const std::lock_guard lock(mutex_);
  watch_ = std::move(fd);
}

std::vector<LinkWatch::Change> CmSockets::ReadWatch() {
  const int fd = watch();
  absl::Cleanup look_again = [this] { missed_ = true; };
  for (;;) {
    const ssize_t n =
        ::recv(fd, watch_bytes_.data(), watch_bytes_.size(), MSG_DONTWAIT);
    if (n >= 0) {
      links_.Read(std::span(watch_bytes_).first(static_cast<size_t>(n)),
                  &changes_);
    } else if (errno == ENOBUFS) {
      missed_ = true;  // an overflow is reported once
    } else if (errno != EINTR) {
      break;
    }
  }
  const bool all = !missed_ || links_.ReadAll(&changes_);
  std::move(look_again).Cancel();
  missed_ = !all;
  return std::exchange(changes_, {});
}

absl::StatusOr<uint64_t> CmSockets::Add(const LocalAddress& local,
                                        UniqueFd received) {
  const bool v6 = !local.address.is_v4();
  uint16_t port = wire::kRoceUdpPort;
  absl::StatusOr<int> sender = NatMode()
                                   ? SendFromReceiver(received.get(), local)
                                   : OpenSender(local, &port);
  if (!sender.ok()) return sender.status();
  // In NAT mode, lanes may read this socket as well.
  if (!NatMode()) WantErrors(*sender, v6);
  Address address = {{local, 0}, std::move(received), UniqueFd(*sender), port};
  const std::lock_guard lock(mutex_);
  const auto [added, fresh] = addresses_.try_emplace(local, std::move(address));
  if (fresh) added->second.opened.number = ++last_number_;
  return added->second.opened.number;
}

void CmSockets::Remove(const LocalAddress& local) {
  const std::lock_guard lock(mutex_);
  addresses_.erase(local);
}

size_t CmSockets::size() const {
  const std::lock_guard lock(mutex_);
  return addresses_.size();
}

std::vector<CmSockets::Opened> CmSockets::All() const {
  std::vector<Opened> out;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [local, address] : addresses_) {
      out.push_back(address.opened);
    }
  }
  std::ranges::sort(out, {}, &Opened::number);
  return out;
}

bool CmSockets::Has(const LocalAddress& local) const {
  const std::lock_guard lock(mutex_);
  return local.scope_id == 0 ? FindSender(local.address) != nullptr
                             : addresses_.contains(local);
}

const CmSockets::Address* CmSockets::FindSender(
    const wire::IpAddress& address) const {
  const auto first = addresses_.lower_bound({address, 0});
  const Address* found = nullptr;
  for (auto at = first; at != addresses_.end() && at->first.address == address;
       ++at) {
    found = &at->second;
    // The interface may be gone, and another one may have its address.
    char name[IF_NAMESIZE];
    const bool last = std::next(at) == addresses_.end() ||
                      std::next(at)->first.address != address;
    if (last || ::if_indextoname(at->first.scope_id, name) != nullptr) break;
  }
  return found;
}

const CmSockets::Address* CmSockets::Find(const Opened& opened) const {
  const auto found = addresses_.find(opened.local);
  return found != addresses_.end() &&
                 found->second.opened.number == opened.number
             ? &found->second
             : nullptr;
}

std::optional<CmSockets::Opened> CmSockets::At(
    const wire::IpAddress& address) const {
  const std::lock_guard lock(mutex_);
  const Address* const found = FindSender(address);
  return found == nullptr ? std::nullopt : std::optional(found->opened);
}

int CmSockets::Received(const Opened& opened) const {
  const std::lock_guard lock(mutex_);
  const Address* const found = Find(opened);
  return found == nullptr ? -1 : found->received.get();
}

int CmSockets::Sender(const Opened& opened) const {
  const std::lock_guard lock(mutex_);
  const Address* const found = Find(opened);
  return found == nullptr ? -1 : found->sender.get();
}

void CmSockets::ReadUndelivered(const Opened& opened,
                                const OnUndelivered& on_undelivered) const {
  const int fd = Sender(opened);
  for (int i = 0; fd >= 0 && i < kReadBatch; ++i) {
    std::array<uint8_t, transport::cm::kMadPacketSize> bytes;
    std::array<uint8_t, 512> control;
    SocketAddress to;
    iovec part = {.iov_base = bytes.data(), .iov_len = bytes.size()};
    msghdr message = {};
    message.msg_name = &to;
    message.msg_namelen = sizeof(to);
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t n = ::recvmsg(fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT);
    if (n < 0) return;
    if (static_cast<size_t>(n) < bytes.size() || !IsPortUnreachable(message)) {
      continue;
    }
    transport::cm::OutgoingMad mad;
    mad.local = opened.local.address;
    mad.remote = FromSocketAddress(to);
    std::copy_n(bytes.begin() + wire::kBthSize + wire::kDethSize,
                mad.bytes.size(), mad.bytes.begin());
    on_undelivered(mad);
  }
}

bool CmSockets::Send(const transport::cm::OutgoingMad& mad) {
  const std::lock_guard lock(mutex_);
  const Address* const sender = FindSender(mad.local);
  if (sender == nullptr || mad.local.is_v4() != mad.remote.is_v4()) {
    return false;
  }
  const Address& from = *sender;
  std::array<uint8_t, transport::cm::kMadPacketSize> packet;
  transport::cm::EmitMadPacket({.source = mad.local,
                                .destination = mad.remote,
                                .source_port = from.port},
                               ++psn_, mad.bytes, packet);
  const bool translated = mad.via.port != 0;
  // A packet from this host to its own public address stays on the host.
  const wire::IpAddress destination = translated ? mad.via.address
                                      : mad.remote == mad.local
                                          ? BoundAddress(mad.local)
                                          : mad.remote;
  SocketAddress to;
  const socklen_t size = ToSocketAddress(
      destination, translated ? mad.via.port : wire::kRoceUdpPort,
      from.opened.local.scope_id, &to);
  // A failure may report the ICMP error of an earlier send; several may be
  // queued.
  for (int i = 0; i < 8; ++i) {
    if (::sendto(from.sender.get(), packet.data(), packet.size(), MSG_DONTWAIT,
                 &to.any, size) >= 0) {
      if (observer_ != nullptr) {
        observer_->OnPacket({.direction = transport::Direction::kTransmitted,
                             .bytes = packet,
                             .qpn = wire::kGsiQpn,
                             .source = mad.local,
                             .destination = mad.remote,
                             .source_port = from.port});
      }
      return true;
    }
    if (errno == EAGAIN) return false;
  }
  return false;
}

void CmSockets::Read(const LocalAddress& local, int fd,
                     const OnDatagram& on_datagram) {
  const wire::IpAddress bound = BoundAddress(local.address);
  for (int i = 0; i < kReadBatch; ++i) {
    std::array<uint8_t, kReadBytes> bytes;
    SocketAddress from;
    socklen_t size = sizeof(from);
    const ssize_t n = ::recvfrom(fd, bytes.data(), bytes.size(),
                                 MSG_DONTWAIT | MSG_TRUNC, &from.any, &size);
    if (n < 0) return;
    const wire::IpAddress source = FromSocketAddress(from);
    const transport::cm::MadFlow flow = {
        .source = source == bound ? local.address : source,
        .destination = local.address,
        .source_port =
            ntohs(from.any.sa_family == AF_INET ? from.v4.sin_port
                                                : from.v6.sin6_port)};
    on_datagram(flow, std::span(bytes).first(
                          std::min(static_cast<size_t>(n), bytes.size())));
  }
}

}  // namespace rxe_user
