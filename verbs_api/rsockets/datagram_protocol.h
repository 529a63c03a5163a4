// Headers of datagram rsockets: rdma-core, librdmacm/docs/rsocket. No state.
//
// The first datagrams go over a UDP socket of the kernel, with a header that
// names the sender's queue pair. The receiver's reply names its own queue pair.
// From then on datagrams go between the queue pairs, with a header that names
// the sender's address.
#ifndef VERBS_API_RSOCKETS_DATAGRAM_PROTOCOL_H_
#define VERBS_API_RSOCKETS_DATAGRAM_PROTOCOL_H_

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <tuple>

namespace rsockets {

// An address of IPv4 or IPv6 with a port. Comparable byte by byte.
struct DatagramAddress {
  sa_family_t family = AF_UNSPEC;
  uint16_t port = 0;       // host order
  uint32_t flow_info = 0;  // as in sockaddr_in6
  uint32_t scope_id = 0;   // of a link-local address, else 0; not on the wire
  std::array<uint8_t, 16> bytes = {};  // IPv4 uses the first four

  static DatagramAddress Of(const sockaddr* address);
  socklen_t Fill(sockaddr_storage* out) const;
  // The GID: an IPv4 address is mapped into IPv6.
  std::array<uint8_t, 16> Gid() const;
  bool is_wildcard() const;
  // Includes link-local multicast.
  bool is_link_local() const;

  // Identifies host and port.
  auto Key() const { return std::tuple(family, port, bytes, scope_id); }
};

struct HeaderBytes {
  std::array<uint8_t, 28> bytes;
  size_t length;
};

// --- Over UDP.
enum class UdpOp : uint8_t {
  kData = 0,     // a datagram follows; the receiver replies
  kControl = 7,  // only names the sender's queue pair
};
struct UdpHeader {
  UdpOp op;
  uint32_t qpn;
  DatagramAddress address;  // of the sender; the port is that of the packet
};
HeaderBytes Encode(const UdpHeader& header);
// Absent if it is not a valid header. `*length`: bytes of the header.
std::optional<UdpHeader> ParseUdpHeader(std::span<const uint8_t> packet,
                                        size_t* length);

// --- Between queue pairs: the sender's address.
HeaderBytes EncodeSource(const DatagramAddress& source);
std::optional<DatagramAddress> ParseSource(std::span<const uint8_t> packet,
                                           size_t* length);

}  // namespace rsockets

#endif  // VERBS_API_RSOCKETS_DATAGRAM_PROTOCOL_H_
