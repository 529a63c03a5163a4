// Received datagrams and packets, before and after ICRC verification.
#ifndef TRANSPORT_ENDPOINT_DATAGRAM_H_
#define TRANSPORT_ENDPOINT_DATAGRAM_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/base/types.h"
#include "wire/packet.h"

namespace transport {

// The result of one receive call: a UDP datagram, or several that GRO merged.
struct GroBatch {
  std::span<const uint8_t> bytes;  // UDP payloads
  size_t segment_size = 0;         // bytes of each segment but the last; > 0
  wire::IpAddress source;
  wire::IpAddress destination;
  uint16_t source_port = 0;
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 0;
  // False: it came over memory shared with a process of this user
  // (Burst::WithoutIcrc), and its ICRCs mean nothing.
  bool has_icrc = true;
};

// A datagram of a GRO batch.
struct Datagram {
  std::span<const uint8_t> bytes;  // UDP payload: BTH to ICRC
  wire::IpAddress source;
  wire::IpAddress destination;
  uint16_t source_port = 0;
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 0;
  // Index in the GRO batch: the first guess at its IP ID
  // (docs/design/transport.md, "The IP identification").
  uint16_t segment_index = 0;
};

// The sender of a packet, judged by its addresses.
enum class Origin : uint8_t {
  kElsewhere,
  // Addresses of the queue pair's flow, but not the known port.
  kPeerAddress,
  // Addresses of the flow, and the known UDP source port of the peer.
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
