#include "tests/attacks/forger.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <linux/ipv6.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "wire/bytes.h"
#include "wire/icrc.h"

namespace attacks {
namespace {

constexpr size_t kUdpHeader = 8;
constexpr size_t kIpv4Header = 20;
constexpr size_t kIpv6Header = 40;
constexpr int64_t kCaptureMs = 20'000;

// The header of a captured frame with PACKET_VNET_HDR: struct virtio_net_hdr,
// whose own header is not valid C++.
struct FrameHeader {
  uint8_t flags;
  uint8_t gso_type;
  uint16_t header_length;
  uint16_t gso_size;  // bytes of each segment; 0: not segmented
  uint16_t checksum_start;
  uint16_t checksum_offset;
};

socklen_t ToSockaddr(const wire::IpAddress& address, uint16_t port,
                     sockaddr_storage* out) {
  *out = {};
  if (address.is_v4()) {
    auto* v4 = reinterpret_cast<sockaddr_in*>(out);
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    v4->sin_addr.s_addr = address.v4_be();
    return sizeof(*v4);
  }
  auto* v6 = reinterpret_cast<sockaddr_in6*>(out);
  v6->sin6_family = AF_INET6;
  v6->sin6_port = htons(port);
  std::memcpy(&v6->sin6_addr, address.bytes.data(), 16);
  return sizeof(*v6);
}

uint32_t Sum(std::span<const uint8_t> bytes) {
  uint32_t sum = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    sum += i % 2 == 0 ? bytes[i] << 8 : bytes[i];
  }
  return sum;
}

// The checksum that UDP over IPv6 requires (RFC 8200, 8.1).
uint16_t UdpChecksum(const wire::IpAddress& from, const wire::IpAddress& to,
                     std::span<const uint8_t> udp) {
  uint32_t sum = Sum(from.bytes) + Sum(to.bytes) + Sum(udp) +
                 static_cast<uint32_t>(udp.size()) + IPPROTO_UDP;
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  const auto checksum = static_cast<uint16_t>(~sum);
  return checksum == 0 ? 0xffff : checksum;
}

int64_t NowMs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
}

// Reads everything and returns the number of bytes.
uint64_t Drain(int fd) {
  uint64_t all = 0;
  uint8_t buffer[1 << 16];
  for (;;) {
    const ssize_t bytes = recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT);
    if (bytes < 0) return all;
    all += static_cast<uint64_t>(bytes);
  }
}

// Adds the packets of one frame, which the loopback interface does not split.
void AddFrame(std::span<const uint8_t> frame, size_t segment_size, bool ipv6,
              std::vector<Captured>* all) {
  const size_t ip = ipv6 ? kIpv6Header : kIpv4Header;
  if (frame.size() < ip + kUdpHeader) return;
  const uint8_t protocol = frame[ipv6 ? 6 : 9];
  if (frame[0] >> 4 != (ipv6 ? 6 : 4) || protocol != IPPROTO_UDP) return;
  const std::span<const uint8_t> udp = frame.subspan(ip);
  if (wire::LoadBe16(udp.data() + 2) != wire::kRoceUdpPort) return;
  std::span<const uint8_t> rest = udp.subspan(kUdpHeader);
  uint16_t ip_id = ipv6 ? 0 : wire::LoadBe16(frame.data() + 4);
  if (segment_size == 0) segment_size = rest.size();
  while (!rest.empty()) {
    const auto bytes = rest.first(std::min(segment_size, rest.size()));
    all->push_back({Bytes(bytes.begin(), bytes.end()),
                    wire::LoadBe16(udp.data()), ip_id++});
    rest = rest.subspan(bytes.size());
  }
}

}  // namespace

UserSocket::UserSocket(const wire::IpAddress& address) : address_(address) {
  const bool v4 = address.is_v4();
  fd_ = socket(v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  // As in RoCE: no fragments, so the IP identification is 0.
  const int probe = v4 ? IP_PMTUDISC_PROBE : IPV6_PMTUDISC_PROBE;
  setsockopt(fd_, v4 ? IPPROTO_IP : IPPROTO_IPV6,
             v4 ? IP_MTU_DISCOVER : IPV6_MTU_DISCOVER, &probe, sizeof(probe));
  sockaddr_storage name;
  socklen_t size = ToSockaddr(address, 0, &name);
  if (bind(fd_, reinterpret_cast<sockaddr*>(&name), size) != 0 ||
      getsockname(fd_, reinterpret_cast<sockaddr*>(&name), &size) != 0) {
    close(fd_);
    fd_ = -1;
    return;
  }
  // At the same offset for both families.
  port_ = ntohs(reinterpret_cast<sockaddr_in*>(&name)->sin_port);
}

UserSocket::~UserSocket() {
  if (fd_ >= 0) close(fd_);
}

bool UserSocket::Send(const wire::IpAddress& to,
                      std::span<const uint8_t> bytes) {
  sockaddr_storage name;
  const socklen_t size = ToSockaddr(to, wire::kRoceUdpPort, &name);
  return sendto(fd_, bytes.data(), bytes.size(), 0,
                reinterpret_cast<sockaddr*>(&name),
                size) == static_cast<ssize_t>(bytes.size());
}

uint64_t UserSocket::Take() { return Drain(fd_); }

RawSocket::RawSocket(bool ipv6) : ipv6_(ipv6) {
  fd_ = socket(ipv6 ? AF_INET6 : AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
  const int on = 1;
  if (ipv6) {
    setsockopt(fd_, IPPROTO_IPV6, IPV6_HDRINCL, &on, sizeof(on));
  }
}

RawSocket::~RawSocket() {
  if (fd_ >= 0) close(fd_);
}

bool RawSocket::Send(const wire::IpAddress& from, uint16_t port,
                     const wire::IpAddress& to, std::span<const uint8_t> bytes,
                     uint16_t ip_id) {
  const size_t ip = ipv6_ ? kIpv6Header : kIpv4Header;
  Bytes packet(ip + kUdpHeader + bytes.size());
  const std::span<uint8_t> udp = std::span(packet).subspan(ip);
  wire::StoreBe16(udp.data(), port);
  wire::StoreBe16(udp.data() + 2, wire::kRoceUdpPort);
  wire::StoreBe16(udp.data() + 4, static_cast<uint16_t>(udp.size()));
  std::copy(bytes.begin(), bytes.end(), udp.begin() + kUdpHeader);
  if (ipv6_) {
    packet[0] = 0x60;
    wire::StoreBe16(packet.data() + 4, static_cast<uint16_t>(udp.size()));
    packet[6] = IPPROTO_UDP;
    packet[7] = wire::kDefaultHopLimit;
    std::copy(from.bytes.begin(), from.bytes.end(), packet.begin() + 8);
    std::copy(to.bytes.begin(), to.bytes.end(), packet.begin() + 24);
    wire::StoreBe16(udp.data() + 6, UdpChecksum(from, to, udp));
  } else {
    packet[0] = 0x45;
    wire::StoreBe16(packet.data() + 2, static_cast<uint16_t>(packet.size()));
    wire::StoreBe16(packet.data() + 4, ip_id);
    packet[6] = 0x40;  // DF: the identification stays 0
    packet[8] = wire::kDefaultHopLimit;
    packet[9] = IPPROTO_UDP;
    std::copy(from.bytes.begin() + 12, from.bytes.end(), packet.begin() + 12);
    std::copy(to.bytes.begin() + 12, to.bytes.end(), packet.begin() + 16);
  }
  sockaddr_storage name;
  const socklen_t size = ToSockaddr(to, 0, &name);
  return sendto(fd_, packet.data(), packet.size(), 0,
                reinterpret_cast<sockaddr*>(&name),
                size) == static_cast<ssize_t>(packet.size());
}

PacketsTo::PacketsTo(const wire::IpAddress& address) {
  const bool v4 = address.is_v4();
  fd_ = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC,
               htons(v4 ? ETH_P_IP : ETH_P_IPV6));
  // The last word of the destination distinguishes the addresses.
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, v4 ? 16u : 36u),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
               wire::LoadBe32(address.bytes.data() + 12), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, 0xffff),
      BPF_STMT(BPF_RET | BPF_K, 0),
  };
  const sock_fprog filter = {4, program};
  if (setsockopt(fd_, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter)) !=
      0) {
    close(fd_);
    fd_ = -1;
    return;
  }
  Drain(fd_);  // packets from before the filter
}

PacketsTo::~PacketsTo() {
  if (fd_ >= 0) close(fd_);
}

uint64_t PacketsTo::Take() { return Drain(fd_); }

std::vector<Captured> Capture(bool ipv6, size_t count) {
  std::vector<Captured> all;
  const uint16_t protocol = ipv6 ? ETH_P_IPV6 : ETH_P_IP;
  const int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(protocol));
  if (fd < 0) return all;
  const int on = 1;
  setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof(on));
  const int64_t end = NowMs() + kCaptureMs;
  constexpr size_t kBefore = sizeof(FrameHeader) + sizeof(ether_header);
  Bytes buffer(kBefore + (1 << 16));
  while (all.size() < count && NowMs() < end) {
    pollfd ready = {fd, POLLIN, 0};
    if (poll(&ready, 1, 100) != 1) continue;
    sockaddr_ll from = {};
    socklen_t size = sizeof(from);
    const ssize_t bytes = recvfrom(fd, buffer.data(), buffer.size(), 0,
                                   reinterpret_cast<sockaddr*>(&from), &size);
    // A sent packet is seen a second time when it is received.
    if (bytes < static_cast<ssize_t>(kBefore) ||
        from.sll_pkttype != PACKET_HOST) {
      continue;
    }
    FrameHeader header;
    std::memcpy(&header, buffer.data(), sizeof(header));
    AddFrame(
        std::span(buffer).first(static_cast<size_t>(bytes)).subspan(kBefore),
        header.gso_size, ipv6, &all);
  }
  close(fd);
  return all;
}

Bytes BuildPacket(const wire::Headers& headers, size_t payload_bytes,
                  const wire::IpAddress& from, uint16_t port,
                  const wire::IpAddress& to) {
  wire::Headers padded = headers;
  padded.bth.pad_count = wire::PadCount(payload_bytes);
  Bytes packet(wire::kMaxHeaderSize);
  packet.resize(wire::EmitHeaders(padded, packet.data()));
  packet.resize(packet.size() + payload_bytes, 0xee);
  packet.resize(packet.size() + padded.bth.pad_count + wire::kIcrcSize);
  wire::IcrcFlow(from, to, port, wire::kRoceUdpPort).Store(packet, 0);
  return packet;
}

bool AddLoopbackAddress(const wire::IpAddress& address) {
  const int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  in6_ifreq request = {};
  std::memcpy(&request.ifr6_addr, address.bytes.data(), 16);
  request.ifr6_prefixlen = 128;
  request.ifr6_ifindex = static_cast<int>(if_nametoindex("lo"));
  const bool ok = ioctl(fd, SIOCSIFADDR, &request) == 0 || errno == EEXIST;
  close(fd);
  return ok;
}

}  // namespace attacks
