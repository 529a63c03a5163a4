// UDP sockets as the device uses them: addresses, options, control messages.
#ifndef RXE_USER_PORTS_UDP_SOCKET_H_
#define RXE_USER_PORTS_UDP_SOCKET_H_

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rxe_user/ports/port.h"
#include "transport/base/types.h"
#include "wire/address.h"
#include "wire/headers.h"

namespace rxe_user {

// The largest UDP payload over IPv4, hence also of a segmented send.
inline constexpr size_t kMaxUdpPayload = 65507;
// A buffer for any datagram or merged ones, on pages of its own.
inline constexpr size_t kDatagramBytes = 65536;

union SocketAddress {
  sockaddr any;
  sockaddr_in v4;
  sockaddr_in6 v6;
};
// Fills `*out`; returns its length. `scope_id` counts for link-local IPv6.
socklen_t ToSocketAddress(const wire::IpAddress& address, uint16_t port,
                          uint32_t scope_id, SocketAddress* out);
wire::IpAddress FromSocketAddress(const SocketAddress& address);

// Sets what receiving needs: GRO, control messages, overflow count, checksums
// of zero over IPv6, as large a buffer as is allowed.
absl::Status PrepareReceiver(int fd, bool v6);

// The size of its receive buffer as the kernel counts it; 0 if that is not
// known.
uint64_t ReceiveBufferOf(int fd);

// A socket that only sends, from a free port of `local` (of 0xC000..0xFFFF, or
// if all of them are taken of 1024..0xBFFF), and to multicast groups on the
// interface of that address: unconnected, fragmentation forbidden (so the IP ID
// is known, facts of datapath.md), everything that comes in dropped.
// Non-blocking, close-on-exec. kUnavailable (EADDRINUSE): no port is free.
absl::StatusOr<int> OpenSender(const LocalAddress& local, uint16_t* port);

// A copy of `receiver`, a socket of port 4791, that is good for sending as
// those of OpenSender: what is sent has port 4791 as its source (NatMode). The
// other descriptors of the socket receive as before. Close-on-exec.
absl::StatusOr<int> SendFromReceiver(int receiver, bool v6);

// A socket for what comes to the multicast group `group` on the interface, on
// port 4791; the interface joins the group by IGMP or MLD for as long as there
// is one. Each such socket of the host gets a copy, of whichever process it is.
// Non-blocking, close-on-exec.
absl::StatusOr<int> OpenGroup(const wire::IpAddress& group, uint32_t ifindex);

// How many datagrams the socket has dropped so far (what SO_RXQ_OVFL counts).
uint32_t DropCount(int fd);

// Whether the kernel knows UDP_SEGMENT.
bool SegmentationSupported(int fd);

// Room for the control messages of one send or receive.
inline constexpr size_t kControlBytes = 192;

// What a socket says in the IP headers of sends whose control messages say
// nothing else. The kernel allocates memory for a send with more than one.
struct SendDefaults {
  uint8_t traffic_class = 0;
  uint8_t hop_limit = wire::kDefaultHopLimit;
};
// Makes `fd`, from OpenSender, say what `av` does. Returns its defaults then:
// where the kernel refuses, they stay.
SendDefaults SetSendDefaults(int fd, const transport::AddressVector& av);

// Writes the control messages of a send from the address vector, where it
// differs from the socket's defaults, and `segment_size` unless 0. Returns
// their length.
size_t WriteSendControl(const transport::AddressVector& av, size_t segment_size,
                        const SendDefaults& defaults,
                        uint8_t control[kControlBytes]);

// What came with a datagram.
struct ReceiveControl {
  size_t segment_size = 0;  // 0 = not merged
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 0;
  bool has_overflow = false;
  uint32_t overflow = 0;  // the socket's count, modulo 2^32
};
ReceiveControl ReadReceiveControl(const msghdr& message);

}  // namespace rxe_user

#endif  // RXE_USER_PORTS_UDP_SOCKET_H_
