#include "rxe_user/broker/steering_trial.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>

#include "rxe_user/base/random.h"
#include "rxe_user/base/unique_fd.h"
#include "rxe_user/broker/steering.h"
#include "rxe_user/broker/udp.h"
#include "wire/packet.h"

namespace rxe_user::broker {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// A datagram on the loopback interface usually arrives before sendto returns.
constexpr milliseconds kArrival{1000};

// The first byte is no opcode, and the destination queue pair is in a slot.
// Random bytes follow the BTH.
using Packet = std::array<uint8_t, wire::kBthSize + wire::kIcrcSize>;

absl::Status Cannot(const std::string& why) {
  return absl::UnimplementedError(
      "UDP port 4791 cannot be shared among processes: the system " + why);
}

uint16_t PortOf(int fd) {
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    return 0;
  }
  // The port has the same offset in both structures.
  static_assert(offsetof(sockaddr_in, sin_port) ==
                offsetof(sockaddr_in6, sin6_port));
  sockaddr_in head;
  std::memcpy(&head, &bound, sizeof(head));
  return ntohs(head.sin_port);
}

// Whether a packet arrives at the other slot's socket.
bool GoesAstray(const std::array<UniqueFd, 2>& sockets,
                const LocalAddress& loopback, uint16_t port) {
  const UniqueFd sender = BindUdp(loopback, 0, Sharing::kExclusive);
  const SocketAddress to = ToSocketAddress(loopback, port);
  std::array<Packet, 2> packets{};
  // Send both from one socket: a system that spreads datagrams by address and
  // port would deliver both to the same socket.
  for (size_t slot = 0; slot < packets.size(); ++slot) {
    Packet& packet = packets[slot];
    packet[0] = kProbeFirstByte;
    packet[wire::kBthDestQpnOffset + 1] = static_cast<uint8_t>(slot << 4);
    const uint32_t random = SecureRandom32();
    std::memcpy(packet.data() + wire::kBthSize, &random, sizeof(random));
    // Nothing arrives if the loopback interface is down.
    if (sendto(sender.get(), packet.data(), packet.size(), MSG_DONTWAIT,
               to.get(), to.size) < 0) {
      return false;
    }
  }
  const auto until = Clock::now() + kArrival;
  for (size_t arrived = 0; arrived < packets.size();) {
    pollfd readable[2] = {{sockets[0].get(), POLLIN, 0},
                          {sockets[1].get(), POLLIN, 0}};
    const auto left =
        std::chrono::ceil<milliseconds>(until - Clock::now()).count();
    if (left <= 0) return false;
    (void)poll(readable, 2, static_cast<int>(left));
    for (size_t slot = 0; slot < packets.size(); ++slot) {
      Packet packet{};
      if (recv(sockets[slot].get(), packet.data(), packet.size(),
               MSG_DONTWAIT) < 0) {
        continue;
      }
      if (packet == packets[1 - slot]) return true;
      if (packet == packets[slot]) ++arrived;
    }
  }
  return false;
}

}  // namespace

absl::Status TrySteering() {
  LocalAddress loopback{*wire::IpAddress::Parse("127.0.0.1"), 0};
  // The port must be free: with SO_REUSEPORT the kernel may choose the port of
  // an existing group.
  UniqueFd free = BindUdp(loopback, 0, Sharing::kExclusive);
  if (!free.valid()) {
    loopback.address = *wire::IpAddress::Parse("::1");
    free = BindUdp(loopback, 0, Sharing::kExclusive);
  }
  if (!free.valid()) return absl::OkStatus();
  const uint16_t port = PortOf(free.get());
  free.Reset();
  std::array<UniqueFd, 2> sockets;
  for (UniqueFd& fd : sockets) {
    fd = BindUdp(loopback, port, Sharing::kReusePort);
    if (fd.valid()) continue;
    return errno == ENOPROTOOPT || errno == EPERM
               ? Cannot(std::string("refuses SO_REUSEPORT (") +
                        std::strerror(errno) + ")")
               : absl::OkStatus();
  }
  IndexMap map;
  map.fill(kNoIndex);
  map[0] = 0;
  map[1] = 1;
  if (!AttachFilter(sockets[0].get(), SO_ATTACH_REUSEPORT_CBPF,
                    SteeringProgram(map, SecureRandom32()))) {
    return Cannot(std::string("refuses to steer its datagrams "
                              "(SO_ATTACH_REUSEPORT_CBPF: ") +
                  std::strerror(errno) + ")");
  }
  if (GoesAstray(sockets, loopback, port)) {
    return Cannot(
        "ignores the program that steers its datagrams "
        "(SO_ATTACH_REUSEPORT_CBPF)");
  }
  return absl::OkStatus();
}

}  // namespace rxe_user::broker
