#include "rxe_user/raw_packet/raw_port.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "rxe_user/base/errno_status.h"

namespace rxe_user {
namespace {

using transport::FlowKind;
using transport::FlowRule;
using transport::FlowSpec;

// Bytes that a burst of an unpaced sender may need. The kernel grants less
// without CAP_NET_ADMIN.
constexpr int kReceiveBuffer = 32 << 20;

// The membership that makes the interface receive what `rule` matches. Absent
// if it receives that already.
std::optional<packet_mreq> MembershipFor(const FlowRule& rule,
                                         const std::array<uint8_t, 6>& mac) {
  packet_mreq request{};
  request.mr_alen = static_cast<unsigned short>(mac.size());
  switch (rule.kind) {
    case FlowKind::kSniffer:
    case FlowKind::kAllDefault:
      request.mr_type = PACKET_MR_PROMISC;
      return request;
    case FlowKind::kMulticastDefault:
      request.mr_type = PACKET_MR_ALLMULTI;
      return request;
    case FlowKind::kNormal:
      break;
  }
  for (const FlowSpec& spec : rule.specs) {
    if (spec.layer != transport::FlowLayer::kEthernet) continue;
    const bool exact = std::all_of(spec.mask.begin(), spec.mask.begin() + 6,
                                   [](uint8_t bits) { return bits == 0xff; });
    if (!exact || std::equal(mac.begin(), mac.end(), spec.value.begin())) {
      return std::nullopt;
    }
    request.mr_type =
        (spec.value[0] & 1) != 0 ? PACKET_MR_MULTICAST : PACKET_MR_PROMISC;
    std::memcpy(request.mr_address, spec.value.data(), mac.size());
    return request;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RawPort>> RawPort::Open(const Device& device) {
  std::unique_ptr<RawPort> port(new RawPort(device));
  absl::Status status = port->transmitter_.Open(device.ifindex);
  if (!status.ok()) return status;
  return port;
}

absl::Status RawPort::OpenSocket() {
  // Protocol 0 until it is bound, so that it does not receive from other
  // interfaces.
  UniqueFd fd(::socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "opening a packet socket");
  if (receiver_ == nullptr) receiver_ = std::make_unique<FrameReceiver>();
  if (!receiver_->Prepare(fd.get())) {
    return ErrnoStatus(errno, "PACKET_AUXDATA and PACKET_VNET_HDR");
  }
  if (::setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUFFORCE, &kReceiveBuffer,
                   sizeof(kReceiveBuffer)) != 0) {
    (void)::setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &kReceiveBuffer,
                       sizeof(kReceiveBuffer));
  }
  // Otherwise, frames on loopback would arrive twice. An older kernel refuses
  // the option; FrameReceiver then drops outgoing frames by their type.
  if (loopback_) {
    constexpr int kOn = 1;
    (void)::setsockopt(fd.get(), SOL_PACKET, PACKET_IGNORE_OUTGOING, &kOn,
                       sizeof(kOn));
  }
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(ifindex_);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address),
             sizeof(address)) != 0) {
    return ErrnoStatus(errno, "binding a packet socket to the interface");
  }
  socket_ = std::move(fd);
  return absl::OkStatus();
}

absl::Status RawPort::SetMembership(const FlowRule& rule, int option) {
  std::optional<packet_mreq> request = MembershipFor(rule, mac_);
  if (!request) return absl::OkStatus();
  request->mr_ifindex = static_cast<int>(ifindex_);
  if (::setsockopt(socket_.get(), SOL_PACKET, option, &*request,
                   sizeof(*request)) != 0) {
    return ErrnoStatus(
        errno, "cannot make the interface receive what a flow rule matches");
  }
  return absl::OkStatus();
}

absl::Status RawPort::Prepare(const FlowRule& rule, int* fresh) {
  *fresh = -1;
  const bool first = !socket_.valid();
  if (first) {
    if (absl::Status status = OpenSocket(); !status.ok()) return status;
  }
  absl::Status status = SetMembership(rule, PACKET_ADD_MEMBERSHIP);
  if (!status.ok()) {
    if (first) socket_.Reset();
    return status;
  }
  ++rules_;
  if (first) {
    *fresh = socket_.get();
    fd_.store(socket_.get(), std::memory_order_release);
  }
  return absl::OkStatus();
}

int RawPort::Retire(const FlowRule& rule) {
  (void)SetMembership(rule, PACKET_DROP_MEMBERSHIP);
  return --rules_ == 0 ? fd_.exchange(-1) : -1;
}

size_t RawPort::Receive(transport::Time now, bool patient) {
  const int fd = descriptor();
  if (fd < 0) return 0;
  size_t room = transport::kManyFrames;
  if (patient) {
    room = flows_.FrameRoom();
    if (room != 0) {
      starved_since_ = 0;
    } else {
      if (starved_since_ == 0) starved_since_ = now;
      if (now - starved_since_ < kPatience) return 0;
      room = transport::kManyFrames;
    }
  }
  return receiver_->Receive(fd, room, transmitter_.max_frame(), loopback_,
                            [&](const transport::ReceivedFrame& frame) {
                              flows_.Deliver(frame, now);
                            });
}

void RawPort::AbandonInChild() {
  fd_ = -1;
  socket_.Reset();
  transmitter_.AbandonInChild();
}

}  // namespace rxe_user
