// What comes from the network, before and after its ICRC has been verified.
#ifndef TRANSPORT_ENDPOINT_DATAGRAM_H_
#define TRANSPORT_ENDPOINT_DATAGRAM_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/base/types.h"
#include "wire/packet.h"

namespace transport {

// What one receive call brings: a UDP datagram, or several that GRO merged,
// one after the other.
struct GroBatch {
  std::span<const uint8_t> bytes;  // UDP payloads
  size_t segment_size = 0;         // bytes of each but the last; > 0
  wire::IpAddress source;
  wire::IpAddress destination;
  uint16_t source_port = 0;
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 0;
};

// One of them.
struct Datagram {
  std::span<const uint8_t> bytes;  // UDP payload: BTH to ICRC
  wire::IpAddress source;
  wire::IpAddress destination;
  uint16_t source_port = 0;
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 0;
  // Place among the segments of one merged datagram: the first guess at its
  // IP ID (docs/design/transport.md, "The IP identification").
  uint16_t segment_index = 0;
};

// Who has sent a packet, as far as its addresses tell.
enum class Origin : uint8_t {
  kElsewhere,
  // From the address, and to the one, of the queue pair's flow;
  kPeerAddress,
  // and from the UDP port of what it has believed before.
  kPeerPort,
};

// A packet for a queue pair, ICRC verified.
struct Received {
  const wire::PacketView* packet = nullptr;
  const Datagram* datagram = nullptr;
  Origin origin = Origin::kElsewhere;
  bool congestion_experienced = false;  // ECN CE
};

}  // namespace transport

#endif  // TRANSPORT_ENDPOINT_DATAGRAM_H_
