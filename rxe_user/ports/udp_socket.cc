#include "rxe_user/ports/udp_socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/filter.h>
#include <linux/sock_diag.h>
#include <net/if.h>
#include <netinet/udp.h>
#include <unistd.h>

#include <cstring>
#include <ctime>
#include <string>

#include "absl/strings/str_cat.h"
#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/high_fd.h"
#include "rxe_user/base/public_addresses.h"
#include "rxe_user/base/random.h"

#ifndef IPV6_FLOWINFO
#define IPV6_FLOWINFO 11
#endif

namespace rxe_user {
namespace {

constexpr int kReceiveBuffer = 8 << 20;  // bytes, if allowed
constexpr int kSendBuffer = 4 << 20;
// Source ports. Receivers accept any. RoCEv2 recommends the upper quarter,
// where switches find the entropy of a flow (annex A17).
struct PortRange {
  uint32_t first;
  uint32_t count;  // coprime to kPortStep
};
constexpr PortRange kSourcePorts = {0xc000, 0x4000};
constexpr PortRange kOtherPorts = {1024, 0xc000 - 1024};
constexpr uint32_t kPortStep = 0x9e5;

bool SetOption(int fd, int level, int option, int value) {
  return ::setsockopt(fd, level, option, &value, sizeof(value)) == 0;
}

// -1 if the kernel does not have the option.
int GetOption(int fd, int level, int option) {
  int value = 0;
  socklen_t length = sizeof(value);
  return ::getsockopt(fd, level, option, &value, &length) == 0 ? value : -1;
}

int BufferSize(int fd, int option) { return GetOption(fd, SOL_SOCKET, option); }

// With privilege beyond the limits of net.core, otherwise up to them. Never
// shrinks a buffer: the socket's creator may have had more privilege.
void SetBuffer(int fd, int force_option, int option, int bytes) {
  if (BufferSize(fd, option) >= bytes) return;
  if (::setsockopt(fd, SOL_SOCKET, force_option, &bytes, sizeof(bytes)) == 0) {
    return;
  }
  // A scratch socket shows the size that is allowed.
  const int trial = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (trial < 0) return;
  SetOption(trial, SOL_SOCKET, option, bytes);
  if (BufferSize(trial, option) > BufferSize(fd, option)) {
    SetOption(fd, SOL_SOCKET, option, bytes);
  }
  ::close(trial);
}

// Binds `fd` to a free port of the range, tried in an unpredictable order.
// Returns 0, with `*port`, or an errno value: EADDRINUSE if none is free.
int BindToAny(int fd, const LocalAddress& local, const PortRange& range,
              uint16_t* port) {
  const uint32_t start = SecureRandom32() % range.count;
  int error = EADDRINUSE;
  for (uint32_t i = 0; i < range.count && error == EADDRINUSE; ++i) {
    *port = static_cast<uint16_t>(range.first +
                                  (start + i * kPortStep) % range.count);
    if (*port == wire::kRoceUdpPort) continue;
    SocketAddress address;
    const socklen_t length = ToSocketAddress(BoundAddress(local.address), *port,
                                             local.scope_id, &address);
    error = ::bind(fd, &address.any, length) == 0 ? 0 : errno;
  }
  return error;
}

class ControlWriter {
 public:
  explicit ControlWriter(uint8_t* control) : control_(control) {}
  template <typename T>
  void Add(int level, int type, T value) {
    auto* header = reinterpret_cast<cmsghdr*>(control_ + used_);
    header->cmsg_level = level;
    header->cmsg_type = type;
    header->cmsg_len = CMSG_LEN(sizeof(T));
    std::memcpy(CMSG_DATA(header), &value, sizeof(T));
    used_ += CMSG_SPACE(sizeof(T));
  }
  size_t used() const { return used_; }

 private:
  uint8_t* const control_;
  size_t used_ = 0;
};

template <typename T>
T ReadControl(const cmsghdr* header) {
  T value;
  std::memcpy(&value, CMSG_DATA(header), sizeof(value));
  return value;
}

// The interface that has the address; 0: none.
uint32_t InterfaceOf(const LocalAddress& local) {
  if (local.scope_id != 0) return local.scope_id;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return 0;
  uint32_t found = 0;
  for (const ifaddrs* i = list; i != nullptr && found == 0; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET6) continue;
    SocketAddress its;
    std::memcpy(&its.v6, i->ifa_addr, sizeof(its.v6));
    if (FromSocketAddress(its) == local.address) {
      found = ::if_nametoindex(i->ifa_name);
    }
  }
  ::freeifaddrs(list);
  return found;
}

// For unicast and for multicast packets.
bool SetHopLimit(int fd, bool v6, int hops) {
  return v6 ? SetOption(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, hops) &&
                  SetOption(fd, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, hops)
            : SetOption(fd, IPPROTO_IP, IP_TTL, hops) &&
                  SetOption(fd, IPPROTO_IP, IP_MULTICAST_TTL, hops);
}

}  // namespace

socklen_t ToSocketAddress(const wire::IpAddress& address, uint16_t port,
                          uint32_t scope_id, SocketAddress* out) {
  if (address.is_v4()) {
    out->v4 = {};
    out->v4.sin_family = AF_INET;
    out->v4.sin_port = htons(port);
    out->v4.sin_addr.s_addr = address.v4_be();
    return sizeof(out->v4);
  }
  out->v6 = {};
  out->v6.sin6_family = AF_INET6;
  out->v6.sin6_port = htons(port);
  std::memcpy(&out->v6.sin6_addr, address.bytes.data(), address.bytes.size());
  if (IN6_IS_ADDR_LINKLOCAL(&out->v6.sin6_addr)) {
    out->v6.sin6_scope_id = scope_id;
  }
  return sizeof(out->v6);
}

wire::IpAddress FromSocketAddress(const SocketAddress& address) {
  return address.any.sa_family == AF_INET
             ? wire::IpAddress::FromV4(address.v4.sin_addr.s_addr)
             : wire::IpAddress::FromGid(address.v6.sin6_addr.s6_addr);
}

absl::Status PrepareReceiver(int fd, bool v6) {
  const int one = 1;
  if (v6) {
    SetOption(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
    SetOption(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
    if (::setsockopt(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX, &one, sizeof(one)) !=
        0) {
      return ErrnoStatus(errno, "UDP_NO_CHECK6_RX");
    }
  } else {
    SetOption(fd, IPPROTO_IP, IP_RECVTOS, 1);
    SetOption(fd, IPPROTO_IP, IP_RECVTTL, 1);
  }
  SetOption(fd, SOL_SOCKET, SO_RXQ_OVFL, 1);
  SetBuffer(fd, SO_RCVBUFFORCE, SO_RCVBUF, kReceiveBuffer);
  // Kernels before 5.0 have no UDP_GRO: datagrams then arrive one by one.
  SetOption(fd, IPPROTO_UDP, UDP_GRO, 1);
  return absl::OkStatus();
}

// The value is a time limit of calls that wait. None does.
void SetBusyPoll(int fd, bool on) {
  SetOption(fd, SOL_SOCKET, SO_BUSY_POLL, on ? 1 : 0);
}

void SetKernelTimes(int fd, bool on) {
  SetOption(fd, SOL_SOCKET, SO_TIMESTAMPNS, on);
}

int64_t KernelTimeIn(const uint8_t* control) {
  const auto* const header = reinterpret_cast<const cmsghdr*>(control);
  if (header->cmsg_level != SOL_SOCKET ||
      header->cmsg_type != SCM_TIMESTAMPNS ||
      header->cmsg_len != CMSG_LEN(sizeof(timespec))) {
    return 0;
  }
  const auto time = ReadControl<timespec>(header);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

uint64_t ReceiveBufferOf(int fd) {
  return static_cast<uint64_t>(std::max(BufferSize(fd, SO_RCVBUF), 0));
}

namespace {

// For IPv6. IPv4 chooses the interface by the socket's bound address.
void SetMulticastInterface(int fd, const LocalAddress& local) {
  if (const uint32_t ifindex = InterfaceOf(Bound(local))) {
    SetOption(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, static_cast<int>(ifindex));
  }
}

void PrepareSender(int fd, const LocalAddress& local) {
  const bool v6 = !local.address.is_v4();
  if (v6) {
    SetOption(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);
    SetMulticastInterface(fd, local);
  } else {
    SetOption(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
  }
  SetHopLimit(fd, v6, wire::kDefaultHopLimit);
  SetBuffer(fd, SO_SNDBUFFORCE, SO_SNDBUF, kSendBuffer);
}

// A sending socket of `local` as OpenSender returns it, without a port.
absl::StatusOr<int> OpenUnboundSender(const LocalAddress& local) {
  const bool v6 = !local.address.is_v4();
  const int fd = MoveHigh(::socket(
      v6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd < 0) return ErrnoStatus(errno, "UDP socket");
  if (v6) SetOption(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
  PrepareSender(fd, local);
  sock_filter drop[] = {{BPF_RET | BPF_K, 0, 0, 0}};
  const sock_fprog program = {1, drop};
  (void)::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program,
                     sizeof(program));
  return fd;
}

}  // namespace

absl::StatusOr<int> OpenSender(const LocalAddress& local, uint16_t* port) {
  const absl::StatusOr<int> opened = OpenUnboundSender(local);
  if (!opened.ok()) return opened;
  const int fd = *opened;
  int error = BindToAny(fd, local, kSourcePorts, port);
  // Another user may hold all of those.
  if (error == EADDRINUSE) error = BindToAny(fd, local, kOtherPorts, port);
  if (error == 0) return fd;
  ::close(fd);
  const std::string what =
      absl::StrCat("no UDP source port of ", local.address.ToString());
  if (error != EADDRINUSE) return ErrnoStatus(error, what);
  return absl::UnavailableError(absl::StrCat(
      what, ": other programs hold all from ", kOtherPorts.first,
      " on; `ss -uanp`, as root, shows which: end them, or give this program "
      "an address that they have not bound"));
}

absl::StatusOr<int> OpenSenderOn(const LocalAddress& local, uint16_t port) {
  const absl::StatusOr<int> opened = OpenUnboundSender(local);
  if (!opened.ok()) return opened;
  const int error = BindToAny(*opened, local, {port, 1}, &port);
  if (error == 0) return opened;
  ::close(*opened);
  return ErrnoStatus(error, absl::StrCat("UDP source port ", port, " of ",
                                         local.address.ToString()));
}

absl::StatusOr<int> SendFromReceiver(int receiver, const LocalAddress& local) {
  const int fd = MoveHigh(::fcntl(receiver, F_DUPFD_CLOEXEC, 0));
  if (fd < 0) return ErrnoStatus(errno, "UDP socket");
  PrepareSender(fd, local);
  return fd;
}

absl::StatusOr<int> OpenGroup(const wire::IpAddress& group, uint32_t ifindex) {
  const bool v6 = !group.is_v4();
  const int fd = MoveHigh(::socket(
      v6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd < 0) return ErrnoStatus(errno, "UDP socket");
  SocketAddress address;
  const socklen_t length =
      ToSocketAddress(group, wire::kRoceUdpPort, ifindex, &address);
  // Other processes have sockets of the same group.
  bool good = SetOption(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  if (v6) {
    address.v6.sin6_scope_id = ifindex;
    const ipv6_mreq join = {address.v6.sin6_addr, ifindex};
    // No datagrams of groups that other sockets of this host have joined on
    // other interfaces.
    SetOption(fd, IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0);
    good = good && SetOption(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1) &&
           ::bind(fd, &address.any, length) == 0 &&
           ::setsockopt(fd, IPPROTO_IPV6, IPV6_JOIN_GROUP, &join,
                        sizeof(join)) == 0;
  } else {
    const ip_mreqn join = {address.v4.sin_addr, {}, static_cast<int>(ifindex)};
    good = good && SetOption(fd, IPPROTO_IP, IP_MULTICAST_ALL, 0) &&
           ::bind(fd, &address.any, length) == 0 &&
           ::setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join,
                        sizeof(join)) == 0;
  }
  if (good) return fd;
  const int error = errno;
  ::close(fd);
  return ErrnoStatus(error, absl::StrCat("multicast group ", group.ToString()));
}

uint32_t DropCount(int fd) {
  uint32_t info[SK_MEMINFO_VARS] = {};
  socklen_t length = sizeof(info);
  (void)::getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info, &length);
  return info[SK_MEMINFO_DROPS];
}

bool SegmentationSupported(int fd) {
  return GetOption(fd, IPPROTO_UDP, UDP_SEGMENT) >= 0;
}

SendDefaults SetSendDefaults(int fd, const transport::AddressVector& av) {
  const bool v4 = av.destination.is_v4();
  const int level = v4 ? IPPROTO_IP : IPPROTO_IPV6;
  SendDefaults defaults;
  const uint8_t hop_limit = av.hop_limit_on_wire();
  if (SetHopLimit(fd, !v4, hop_limit)) {
    defaults.hop_limit = hop_limit;
  }
  if (SetOption(fd, level, v4 ? IP_TOS : IPV6_TCLASS, av.traffic_class)) {
    defaults.traffic_class = av.traffic_class;
  }
  return defaults;
}

size_t WriteSendControl(const transport::AddressVector& av, size_t segment_size,
                        const SendDefaults& defaults,
                        uint8_t control[kControlBytes], uint8_t hop_mark) {
  ControlWriter writer(control);
  const uint8_t hop_limit = av.hop_limit_on_wire() - hop_mark;
  if (segment_size != 0) {
    writer.Add(IPPROTO_UDP, UDP_SEGMENT, static_cast<uint16_t>(segment_size));
  }
  const bool v4 = av.destination.is_v4();
  const int level = v4 ? IPPROTO_IP : IPPROTO_IPV6;
  if (av.traffic_class != defaults.traffic_class) {
    writer.Add(level, v4 ? IP_TOS : IPV6_TCLASS, int{av.traffic_class});
  }
  if (hop_limit != defaults.hop_limit) {
    writer.Add(level, v4 ? IP_TTL : IPV6_HOPLIMIT, int{hop_limit});
  }
  if (!v4 && av.flow_label != 0) {
    writer.Add(IPPROTO_IPV6, IPV6_FLOWINFO, htonl(av.flow_label & 0xfffff));
  }
  return writer.used();
}

ReceiveControl ReadReceiveControl(const msghdr& message) {
  ReceiveControl result;
  for (const cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(const_cast<msghdr*>(&message),
                            const_cast<cmsghdr*>(header))) {
    if (header->cmsg_level == IPPROTO_UDP && header->cmsg_type == UDP_GRO) {
      const int size = ReadControl<int>(header);
      if (size > 0) result.segment_size = static_cast<size_t>(size);
    } else if (header->cmsg_level == IPPROTO_IP) {
      if (header->cmsg_type == IP_TOS) {
        result.traffic_class = ReadControl<uint8_t>(header);
      } else if (header->cmsg_type == IP_TTL) {
        result.hop_limit = static_cast<uint8_t>(ReadControl<int>(header));
      }
    } else if (header->cmsg_level == IPPROTO_IPV6) {
      if (header->cmsg_type == IPV6_TCLASS) {
        result.traffic_class = static_cast<uint8_t>(ReadControl<int>(header));
      } else if (header->cmsg_type == IPV6_HOPLIMIT) {
        result.hop_limit = static_cast<uint8_t>(ReadControl<int>(header));
      }
    } else if (header->cmsg_level == SOL_SOCKET &&
               header->cmsg_type == SO_RXQ_OVFL) {
      result.has_overflow = true;
      result.overflow = ReadControl<uint32_t>(header);
    }
  }
  return result;
}

}  // namespace rxe_user
