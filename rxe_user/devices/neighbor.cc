#include "rxe_user/devices/neighbor.h"

#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace rxe_user {
namespace {

// States in which the kernel would send to it (its NUD_VALID).
constexpr int kValid = NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_PROBE |
                       NUD_STALE | NUD_DELAY;

NeighborState ToState(const ndmsg& message) {
  if ((message.ndm_state & kValid) != 0) return NeighborState::kKnown;
  return message.ndm_state == NUD_FAILED ? NeighborState::kFailed
                                         : NeighborState::kUnknown;
}

uint8_t Family(const wire::IpAddress& address) {
  return address.is_v4() ? AF_INET : AF_INET6;
}

std::span<const uint8_t> Bytes(const wire::IpAddress& address) {
  return std::span<const uint8_t>(address.bytes)
      .subspan(address.is_v4() ? 12 : 0);
}

// Absent unless IPv4 or IPv6.
std::optional<wire::IpAddress> ToAddress(std::span<const uint8_t> bytes) {
  if (bytes.size() == 4) {
    uint32_t v4;
    std::memcpy(&v4, bytes.data(), sizeof(v4));
    return wire::IpAddress::FromV4(v4);
  }
  if (bytes.size() == 16) return wire::IpAddress::FromGid(bytes.data());
  return std::nullopt;
}

std::span<const uint8_t> ValueOf(const rtattr* attribute) {
  return {static_cast<const uint8_t*>(RTA_DATA(attribute)),
          RTA_PAYLOAD(attribute)};
}

// A message with room for its attributes: two addresses and an interface.
template <typename Body>
class Request {
 public:
  Request(uint16_t type, uint32_t sequence) {
    header().nlmsg_len = NLMSG_LENGTH(sizeof(Body));
    header().nlmsg_type = type;
    header().nlmsg_flags = NLM_F_REQUEST;
    header().nlmsg_seq = sequence;
  }

  nlmsghdr& header() { return *reinterpret_cast<nlmsghdr*>(bytes_.data()); }
  Body& body() { return *static_cast<Body*>(NLMSG_DATA(bytes_.data())); }
  void Add(uint16_t type, std::span<const uint8_t> value) {
    auto* const attribute = reinterpret_cast<rtattr*>(
        bytes_.data() + NLMSG_ALIGN(header().nlmsg_len));
    attribute->rta_type = type;
    attribute->rta_len = static_cast<uint16_t>(RTA_LENGTH(value.size()));
    std::copy(value.begin(), value.end(),
              static_cast<uint8_t*>(RTA_DATA(attribute)));
    header().nlmsg_len = static_cast<uint32_t>(NLMSG_ALIGN(header().nlmsg_len) +
                                               RTA_ALIGN(attribute->rta_len));
  }
  std::span<const uint8_t> bytes() {
    return std::span(bytes_).first(header().nlmsg_len);
  }

 private:
  alignas(NLMSG_ALIGNTO) std::array<uint8_t, 128> bytes_{};
};

// Calls `on_attribute` for those behind `body`.
template <typename Body, typename F>
void ForEachAttribute(const nlmsghdr& header, F&& on_attribute) {
  const auto* const begin =
      reinterpret_cast<const uint8_t*>(&header) + NLMSG_SPACE(sizeof(Body));
  int length = static_cast<int>(header.nlmsg_len - NLMSG_SPACE(sizeof(Body)));
  for (const auto* a = reinterpret_cast<const rtattr*>(begin);
       RTA_OK(a, length); a = RTA_NEXT(a, length)) {
    on_attribute(*a);
  }
}

// What fits into an answer; what does not is none.
using Answer = std::array<uint8_t, 2048>;

// Sends a request, and returns the message that answers it, in `answer`: null,
// with errno, if there is none of this type with this body.
template <typename Body>
const nlmsghdr* Ask(int fd, Request<Body>& request, uint16_t type,
                    Answer& answer) {
  const std::span<const uint8_t> bytes = request.bytes();
  if (::send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT) < 0) return nullptr;
  for (;;) {
    // The kernel has answered before send returns.
    const ssize_t n = ::recv(fd, answer.data(), answer.size(), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return nullptr;
    size_t left = static_cast<size_t>(n);
    const auto* header = reinterpret_cast<const nlmsghdr*>(answer.data());
    if (!NLMSG_OK(header, left)) return nullptr;
    // Of an earlier question.
    if (header->nlmsg_seq != request.header().nlmsg_seq) continue;
    if (header->nlmsg_type == NLMSG_ERROR &&
        header->nlmsg_len >= NLMSG_LENGTH(sizeof(nlmsgerr))) {
      errno = -static_cast<const nlmsgerr*>(NLMSG_DATA(header))->error;
      return nullptr;
    }
    errno = EPROTO;
    return header->nlmsg_type == type &&
                   header->nlmsg_len >= NLMSG_LENGTH(sizeof(Body))
               ? header
               : nullptr;
  }
}

}  // namespace

bool NeighborTable::Open() {
  fd_.Reset(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK,
                     NETLINK_ROUTE));
  return fd_.valid();
}

std::optional<Neighbor> NeighborTable::On(const LocalAddress& source,
                                          const wire::IpAddress& destination) {
  Request<rtmsg> request(RTM_GETROUTE, ++sequence_);
  const auto bits = static_cast<uint8_t>(Bytes(destination).size() * 8);
  request.body().rtm_family = Family(destination);
  request.body().rtm_dst_len = bits;
  request.body().rtm_src_len = bits;
  request.Add(RTA_DST, Bytes(destination));
  request.Add(RTA_SRC, Bytes(source.address));
  if (source.scope_id != 0) {
    request.Add(RTA_OIF,
                {reinterpret_cast<const uint8_t*>(&source.scope_id), 4});
  }
  alignas(NLMSG_ALIGNTO) Answer answer;
  const nlmsghdr* const route = Ask(fd_.get(), request, RTM_NEWROUTE, answer);
  if (route == nullptr ||
      static_cast<const rtmsg*>(NLMSG_DATA(route))->rtm_type != RTN_UNICAST) {
    return std::nullopt;
  }
  Neighbor out = {.interface = 0, .address = destination};
  ForEachAttribute<rtmsg>(*route, [&](const rtattr& attribute) {
    std::span<const uint8_t> value = ValueOf(&attribute);
    switch (attribute.rta_type) {
      case RTA_OIF:
        if (value.size() == sizeof(out.interface)) {
          std::memcpy(&out.interface, value.data(), sizeof(out.interface));
        }
        break;
      case RTA_VIA:  // a gateway of another family, which stands before it
        if (value.size() < sizeof(rtvia)) break;
        value = value.subspan(sizeof(rtvia));
        [[fallthrough]];
      case RTA_GATEWAY:
        out.address = ToAddress(value).value_or(out.address);
        break;
      default:
        break;
    }
  });
  if (out.interface == 0) return std::nullopt;
  return out;
}

std::optional<NeighborState> NeighborTable::StateOf(const Neighbor& neighbor) {
  Request<ndmsg> request(RTM_GETNEIGH, ++sequence_);
  request.body().ndm_family = Family(neighbor.address);
  request.body().ndm_ifindex = static_cast<int>(neighbor.interface);
  request.Add(NDA_DST, Bytes(neighbor.address));
  alignas(NLMSG_ALIGNTO) Answer answer;
  const nlmsghdr* const found = Ask(fd_.get(), request, RTM_NEWNEIGH, answer);
  if (found != nullptr) {
    return ToState(*static_cast<const ndmsg*>(NLMSG_DATA(found)));
  }
  if (errno == ENOENT) return NeighborState::kUnknown;
  return std::nullopt;
}

bool AsksForNeighbors(uint32_t interface) {
  const UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request = {};
  if (!fd.valid() || if_indextoname(interface, request.ifr_name) == nullptr ||
      ::ioctl(fd.get(), SIOCGIFFLAGS, &request) != 0) {
    return true;
  }
  return (request.ifr_flags & (IFF_LOOPBACK | IFF_NOARP)) == 0;
}

void ReadNeighborNews(std::span<const uint8_t> bytes,
                      OnNeighborState on_state) {
  size_t left = bytes.size();
  const auto* header = reinterpret_cast<const nlmsghdr*>(bytes.data());
  for (; NLMSG_OK(header, left); header = NLMSG_NEXT(header, left)) {
    if (header->nlmsg_type != RTM_NEWNEIGH ||
        header->nlmsg_len < NLMSG_LENGTH(sizeof(ndmsg))) {
      continue;
    }
    const auto& message = *static_cast<const ndmsg*>(NLMSG_DATA(header));
    // Bridges have tables of their own.
    if (message.ndm_family != AF_INET && message.ndm_family != AF_INET6) {
      continue;
    }
    ForEachAttribute<ndmsg>(*header, [&](const rtattr& attribute) {
      if (attribute.rta_type != NDA_DST) return;
      if (const auto address = ToAddress(ValueOf(&attribute))) {
        on_state({static_cast<uint32_t>(message.ndm_ifindex), *address},
                 ToState(message));
      }
    });
  }
}

}  // namespace rxe_user
