// The invariant CRC that ends every RoCEv2 packet (A17), and how to check it
// without knowing the IPv4 identification that it covers.
//
// CRC-32 of IEEE 802.3 over: 8 bytes of ones; the IP header with TOS or
// traffic class, TTL or hop limit, header checksum and flow label all ones;
// the UDP header with its checksum all ones; BTH with byte 4 (FECN, BECN,
// reserved) all ones; everything after it up to the ICRC. It stands on the wire
// least significant byte first.

#ifndef WIRE_ICRC_H_
#define WIRE_ICRC_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "wire/address.h"
#include "wire/bytes.h"
#include "wire/opcode.h"

namespace wire {

// Computes ICRCs for packets of one flow: what stays the same from packet to
// packet is prepared once. Immutable, 8 bytes, cheap to copy.
class IcrcFlow {
 public:
  // Ports in host byte order. Both addresses must be of the same family; if
  // they are not, the flow is taken as IPv6.
  IcrcFlow(const IpAddress& src, const IpAddress& dst, uint16_t src_port,
           uint16_t dst_port);

  // The ICRC of a packet whose bytes from BTH to pad are `bth_to_pad` (at
  // least kBthSize, else a bug). IPv6 has no `ip_id` and `df`: they are
  // ignored.
  uint32_t Compute(std::span<const uint8_t> bth_to_pad, uint16_t ip_id,
                   bool df = true) const {
    return Begin(bth_to_pad, bth_to_pad.size(), ip_id, df);
  }

  // The same for a packet in pieces: Begin with the first (at least kBthSize
  // bytes) and the size of them all, then Extend with each of the others.
  uint32_t Begin(std::span<const uint8_t> first, size_t bth_to_pad_size,
                 uint16_t ip_id, bool df = true) const;
  static uint32_t Extend(uint32_t icrc, std::span<const uint8_t> next);

  // What changes in the result of Begin if these bits of the PSN and of the IP
  // ID change, and nothing else of the packet.
  uint32_t Change(uint32_t psn_bits, uint16_t ip_id_bits) const;

  // Writes the ICRC after the packet's other bytes: the last kIcrcSize bytes
  // of `udp_payload` are set from those before.
  void Store(std::span<uint8_t> udp_payload, uint16_t ip_id,
             bool df = true) const;

  // Whether the last four bytes of `udp_payload` are the ICRC of the others.
  // False if it is too short.
  bool Verify(std::span<const uint8_t> udp_payload, uint16_t ip_id,
              bool df = true) const;

  bool is_v4() const { return v4_; }

 private:
  // The CRC to the end of BTH if everything that Begin fills in is 0, with DF.
  uint32_t base_;
  bool v4_;
};

namespace internal {

// For tests: whether CRCs are SparseCrc's, as from the start on processors
// without a fast one of ISA-L's. Returns what was. Any thread; takes effect on
// the next call.
bool SetCrcSparse(bool on);

}  // namespace internal

inline void StoreIcrc(uint8_t* p, uint32_t icrc) { StoreLe32(p, icrc); }

// A UDP socket does not tell the IPv4 identification of what it receives, but
// CRCs are linear: D = (received ICRC) xor (ICRC computed with an assumed ID)
// depends only on the xor of the two IDs and on the number of bytes after the
// field, and the map from ID to D is invertible.
//
// Returns the ID with which `received` is the right ICRC, if there is one,
// given `computed`, the ICRC computed with `assumed_id`. `covered_size` is the
// size of BTH to pad. One in 65,536 arbitrary values of `received` has an ID,
// so this alone is a 16-bit check: see VerifyAnyId.
std::optional<uint16_t> SolveIpId(uint32_t received, uint32_t computed,
                                  uint16_t assumed_id, size_t covered_size);

// The same for the UDP source port, over IPv4 and IPv6: `computed` is the ICRC
// with `assumed_port`.
std::optional<uint16_t> SolveSourcePort(uint32_t received, uint32_t computed,
                                        uint16_t assumed_port,
                                        size_t covered_size);
// The same for the IPv4 source address: `computed` is the ICRC with `assumed`.
// Any `received` has one, so this alone checks nothing. Sizes of packets only.
IpAddress SolveSourceV4(uint32_t received, uint32_t computed,
                        const IpAddress& assumed, size_t covered_size);

// How far from the last one seen a solved ID is believed. Backwards: packets
// that overtook each other. Forwards: what the sender's counter spent on
// packets to others, and losses; this grows with the time since the last one.
inline constexpr uint32_t kIpIdBackward = 64;
inline constexpr uint32_t kIpIdForward = 1024;
// The forward window after `elapsed_ns` without a packet of that flow: 16 more
// IDs every microsecond, so that after 4 ms of silence any ID is believed. A
// sender whose counter runs on for other destinations is thus never locked out.
constexpr uint32_t IpIdForwardWindow(int64_t elapsed_ns) {
  if (elapsed_ns <= 0) return kIpIdForward;
  const int64_t grown = kIpIdForward + elapsed_ns / 1000 * 16;
  return grown < 0x10000 ? static_cast<uint32_t>(grown) : 0x10000;
}

// Whether `id` is from kIpIdBackward before `last_id` to `forward_window` after
// it.
constexpr bool IsIpIdNear(uint16_t id, uint16_t last_id,
                          uint32_t forward_window = kIpIdForward) {
  // Unsigned 16-bit distance from the start of the window.
  const auto distance = static_cast<uint16_t>(id - last_id + kIpIdBackward);
  return distance <= kIpIdBackward + forward_window;
}

// Verifies a packet whose IPv4 identification is unknown (DF is assumed). Tries
// `segment_index` (its position in what UDP_GRO delivered; 0 for a packet that
// came alone), then 0, then solves; a solved ID counts only if it IsIpIdNear
// `last_id`, or always if `last_id` is empty. Returns the ID, or nothing if the
// packet is bad.
//
// A damaged packet passes as good with a probability of about (2 +
// kIpIdBackward + forward_window) / 2^32; of 2^-16 if anything is believed.
//
// `last_id` belongs to a flow (source address and port), and is the ID that
// this function returned for it last.
//
// IPv6 has no identification: an exact check, and 0 stands for "good".
std::optional<uint16_t> VerifyAnyId(const IcrcFlow& flow,
                                    std::span<const uint8_t> udp_payload,
                                    uint16_t segment_index,
                                    std::optional<uint16_t> last_id,
                                    uint32_t forward_window = kIpIdForward);

}  // namespace wire

#endif  // WIRE_ICRC_H_
