// The headers as plain structures in host byte order. Every value can be
// emitted: bits that exceed a field's wire width are dropped.
//
// Immediate data is four opaque bytes: kept in memory order, as in the verbs'
// `__be32`.

#ifndef WIRE_HEADERS_H_
#define WIRE_HEADERS_H_

#include <cstdint>

namespace wire {

inline constexpr uint16_t kDefaultPkey = 0xffff;
inline constexpr uint32_t kMulticastQpn = 0xffffff;
inline constexpr uint32_t kQpnMask = 0xffffff;
inline constexpr uint32_t kMaxMessage = 1u << 31;  // bytes (9.7.1)
// Default IPv4 TTL and IPv6 hop limit.
inline constexpr uint8_t kDefaultHopLimit = 64;

// Base transport header (InfiniBand specification 9.2).
struct Bth {
  uint8_t opcode = 0;
  bool solicited = false;  // SE
  bool mig_req = true;     // M: hardware sends 1, Linux rxe 0; accept both
  uint8_t pad_count = 0;   // 0 to 3 bytes between payload and ICRC
  uint8_t transport_version = 0;
  uint16_t pkey = kDefaultPkey;
  bool fecn = false;
  bool becn = false;
  uint32_t dest_qpn = 0;  // 24 bits
  bool ack_req = false;
  uint32_t psn = 0;  // 24 bits

  bool operator==(const Bth&) const = default;
};

// Datagram extended transport header (9.3.2).
struct Deth {
  uint32_t qkey = 0;
  uint32_t src_qpn = 0;  // 24 bits

  bool operator==(const Deth&) const = default;
};

// RDMA extended transport header (9.3.3).
struct Reth {
  uint64_t va = 0;
  uint32_t rkey = 0;
  uint32_t length = 0;  // bytes of the whole message

  bool operator==(const Reth&) const = default;
};

// Atomic extended transport header (9.3.4).
struct AtomicEth {
  uint64_t va = 0;
  uint32_t rkey = 0;
  uint64_t swap_or_add = 0;
  uint64_t compare = 0;

  bool operator==(const AtomicEth&) const = default;
};

// Acknowledge extended transport header (9.3.5). See aeth.h for the syndrome.
struct Aeth {
  uint8_t syndrome = 0;
  uint32_t msn = 0;  // 24 bits

  bool operator==(const Aeth&) const = default;
};

// Atomic acknowledge extended transport header (9.3.6).
struct AtomicAckEth {
  uint64_t original = 0;  // value before the operation

  bool operator==(const AtomicAckEth&) const = default;
};

// FLUSH extended transport header (A19).
struct Feth {
  uint8_t placement_type = 0;  // 4 bits: kPlacement...
  uint8_t selectivity = 0;     // 2 bits: kSelectivity...

  bool operator==(const Feth&) const = default;
};
inline constexpr uint8_t kPlacementGlobalVisibility = 1;
inline constexpr uint8_t kPlacementPersistence = 2;
inline constexpr uint8_t kSelectivityRange = 0;
inline constexpr uint8_t kSelectivityWholeMr = 1;

// Header of every DC packet, of both directions (dc.h).
struct DcEth {
  uint8_t version = 1;  // 4 bits; the only known one
  bool from_initiator = false;
  // The DCI; in responses the number of the target's connection.
  uint32_t src_qpn = 0;
  uint32_t initiator_session = 0;
  uint32_t responder_session = 0;  // kNoDcSession until the target names it
  uint32_t dct = 0;                // number of the target

  bool operator==(const DcEth&) const = default;
};
inline constexpr uint32_t kNoDcSession = 0xffffff;
// Destination of packets that name only the target.
inline constexpr uint32_t kNoDcQpn = 0xffffff;

// Header of a DC connect.
struct DccEth {
  uint8_t flags = 0x20;  // as captured; of unknown meaning
  uint64_t access_key = 0;

  bool operator==(const DccEth&) const = default;
};

// Whether two partition keys may communicate (10.9.1.2): the same partition,
// and at least one full member.
constexpr bool PkeysMatch(uint16_t a, uint16_t b) {
  return ((a ^ b) & 0x7fff) == 0 && ((a | b) & 0x8000) != 0;
}

}  // namespace wire

#endif  // WIRE_HEADERS_H_
