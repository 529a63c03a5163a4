// Headers of datagram rsockets: rdma-core, librdmacm/docs/rsocket. No state.
//
// A UDP socket of the kernel carries the first datagrams, with a header that
// names the sender's queue pair; what is answered there names the other one.
// From then on datagrams go from queue pair to queue pair, with a header that
// names the sender's address.
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

// An address of IPv4 or IPv6 with a port, comparable byte by byte.
struct DatagramAddress {
  sa_family_t family = AF_UNSPEC;
  uint16_t port = 0;       // host order
  uint32_t flow_info = 0;  // as in sockaddr_in6
  uint32_t scope_id = 0;   // of a link-local address, else 0; not sent
  std::array<uint8_t, 16> bytes = {};  // of IPv4 the first four

  static DatagramAddress Of(const sockaddr* address);
  socklen_t Fill(sockaddr_storage* out) const;
  // IPv4 as RoCE has it: mapped into IPv6.
  std::array<uint8_t, 16> Gid() const;
  bool is_wildcard() const;
  // One of multicast, too.
  bool is_link_local() const;

  // Of hosts and ports.
  auto Key() const { return std::tuple(family, port, bytes, scope_id); }
};

struct HeaderBytes {
  std::array<uint8_t, 28> bytes;
  size_t length;
};

// --- Over UDP.
enum class UdpOp : uint8_t {
  kData = 0,     // a datagram follows; the receiver answers
  kControl = 7,  // only says which queue pair it is
};
struct UdpHeader {
  UdpOp op;
  uint32_t qpn;
  DatagramAddress address;  // of the sender; the port is that of the packet
};
HeaderBytes Encode(const UdpHeader& header);
// Nothing if it is none. `*length`: bytes of the header.
std::optional<UdpHeader> ParseUdpHeader(std::span<const uint8_t> packet,
                                        size_t* length);

// --- From queue pair to queue pair: the sender's address.
HeaderBytes EncodeSource(const DatagramAddress& source);
std::optional<DatagramAddress> ParseSource(std::span<const uint8_t> packet,
                                           size_t* length);

}  // namespace rsockets

#endif  // VERBS_API_RSOCKETS_DATAGRAM_PROTOCOL_H_
