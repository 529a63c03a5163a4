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

// The largest UDP payload over IPv4, and so of a segmented send.
inline constexpr size_t kMaxUdpPayload = 65507;
// A page-aligned buffer for any datagram, merged ones included.
inline constexpr size_t kDatagramBytes = 65536;

union SocketAddress {
  sockaddr any;
  sockaddr_in v4;
  sockaddr_in6 v6;
};
// Fills `*out` and returns its length. `scope_id` is for link-local IPv6.
socklen_t ToSocketAddress(const wire::IpAddress& address, uint16_t port,
                          uint32_t scope_id, SocketAddress* out);
wire::IpAddress FromSocketAddress(const SocketAddress& address);

// Sets the options for receiving: GRO, control messages, overflow count, zero
// checksums over IPv6, a receive buffer as large as allowed.
absl::Status PrepareReceiver(int fd, bool v6);

// Sets whether a receive that finds the socket empty polls the queue of the
// interface (SO_BUSY_POLL), if the interface has one (NAPI). Turning it on
// needs CAP_NET_ADMIN; without that the call has no effect.
void SetBusyPoll(int fd, bool on);

// Sets whether the kernel notes when it receives each datagram
// (SO_TIMESTAMPNS).
void SetKernelTimes(int fd, bool on);
// The time that SetKernelTimes asks for, in the control data of a datagram, ns
// since 1970; 0 if it is not there. The kernel writes it before all other
// control data.
int64_t KernelTimeIn(const uint8_t* control);

// The size of the socket's receive buffer as the kernel counts it; 0 if
// unknown.
uint64_t ReceiveBufferOf(int fd);

// A sending socket of `local` with a free port in 0xC000..0xFFFF, or in
// 1024..0xBFFF if all of those are taken. It sends to multicast groups on the
// interface of that address. Unconnected, non-blocking, close-on-exec; received
// datagrams are dropped. Fragmentation is off, so the IP ID that the ICRC
// covers is known. kUnavailable (EADDRINUSE): no port is free.
absl::StatusOr<int> OpenSender(const LocalAddress& local, uint16_t* port);

// The same with source port `port`. EADDRINUSE: it is taken. EACCES: it needs a
// privilege.
absl::StatusOr<int> OpenSenderOn(const LocalAddress& local, uint16_t port);

// A copy of `receiver`, a socket of port 4791 of `local`, set up for sending as
// in OpenSender. Packets have source port 4791 (NatMode). The socket's other
// descriptors receive as before. Close-on-exec.
absl::StatusOr<int> SendFromReceiver(int receiver, const LocalAddress& local);

// A socket for datagrams to the multicast group `group` on the interface, port
// 4791. The interface joins the group by IGMP or MLD while such a socket
// exists. Each socket of any process of the host gets a copy. Non-blocking,
// close-on-exec.
absl::StatusOr<int> OpenGroup(const wire::IpAddress& group, uint32_t ifindex);

// Datagrams that the socket has dropped so far, as SO_RXQ_OVFL counts them.
uint32_t DropCount(int fd);

// Whether the kernel knows UDP_SEGMENT.
bool SegmentationSupported(int fd);

// Space for the control messages of one send or receive.
inline constexpr size_t kControlBytes = 192;

// IP header values of a socket's sends without control messages. The kernel
// allocates memory for a send with more than one control message.
struct SendDefaults {
  uint8_t traffic_class = 0;
  uint8_t hop_limit = wire::kDefaultHopLimit;
};
// Sets the values of `av` on `fd`, from OpenSender. Returns the resulting
// defaults: those that the kernel refuses are unchanged.
SendDefaults SetSendDefaults(int fd, const transport::AddressVector& av);

// Writes the control messages of a send: values of the address vector that
// differ from the socket's defaults, and `segment_size` unless 0. `hop_mark`:
// as Burst's. Returns their length.
size_t WriteSendControl(const transport::AddressVector& av, size_t segment_size,
                        const SendDefaults& defaults,
                        uint8_t control[kControlBytes], uint8_t hop_mark = 0);

// The control data of a received datagram.
struct ReceiveControl {
  size_t segment_size = 0;  // 0: not merged
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 0;
  bool has_overflow = false;
  uint32_t overflow = 0;  // the socket's count, modulo 2^32
};
ReceiveControl ReadReceiveControl(const msghdr& message);

}  // namespace rxe_user

#endif  // RXE_USER_PORTS_UDP_SOCKET_H_
