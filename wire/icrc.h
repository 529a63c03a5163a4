// The invariant CRC at the end of every RoCEv2 packet (A17), and its check
// without the IPv4 identification that it covers.
//
// CRC-32 of IEEE 802.3 over: 8 bytes of ones; the IP header with TOS or traffic
// class, TTL or hop limit, header checksum and flow label all ones; the UDP
// header with its checksum all ones; BTH with byte 4 (FECN, BECN, reserved) all
// ones; all bytes after it up to the ICRC. It is sent least significant byte
// first.

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

// Computes the ICRCs of one flow. The constructor prepares the part that is
// equal in all packets. Immutable, 8 bytes, cheap to copy.
class IcrcFlow {
 public:
  // Ports in host byte order. Addresses of different families are taken as
  // IPv6.
  IcrcFlow(const IpAddress& src, const IpAddress& dst, uint16_t src_port,
           uint16_t dst_port);

  // The ICRC of a packet whose bytes from BTH to pad are `bth_to_pad` (at least
  // kBthSize, else a bug). `ip_id` and `df` are ignored for IPv6.
  uint32_t Compute(std::span<const uint8_t> bth_to_pad, uint16_t ip_id,
                   bool df = true) const {
    return Extend(Begin(bth_to_pad.data(), bth_to_pad.size(), ip_id, df),
                  bth_to_pad.subspan(kBthSize));
  }

  // The same for a packet in pieces: Begin with its BTH and its size from BTH
  // to pad, then Extend with each further piece.
  uint32_t Begin(const uint8_t* bth, size_t bth_to_pad_size, uint16_t ip_id,
                 bool df = true) const;
  static uint32_t Extend(uint32_t icrc, std::span<const uint8_t> next);

  // How the result of Begin changes (xor) if these bits of the PSN and of the
  // IP ID are flipped and nothing else changes.
  uint32_t Change(uint32_t psn_bits, uint16_t ip_id_bits) const;

  // Computes the ICRC and stores it in the last kIcrcSize bytes of
  // `udp_payload`.
  void Store(std::span<uint8_t> udp_payload, uint16_t ip_id,
             bool df = true) const;

  // Whether the last four bytes of `udp_payload` are the right ICRC. False if
  // it is too short.
  bool Verify(std::span<const uint8_t> udp_payload, uint16_t ip_id,
              bool df = true) const;

  bool is_v4() const { return v4_; }

 private:
  // The CRC to the end of BTH with DF set and all fields of Begin zero.
  uint32_t base_;
  bool v4_;
};

namespace internal {

// For tests: selects SparseCrc, which processors without a fast CRC of ISA-L
// use by default. Returns the previous setting. Any thread; takes effect on the
// next call.
bool SetCrcSparse(bool on);

// The part of VerifyAnyId for IDs other than the segment index.
std::optional<uint16_t> SolveAnyId(uint32_t received, uint32_t computed,
                                   uint16_t segment_index, size_t covered_size,
                                   std::optional<uint16_t> last_id,
                                   uint32_t forward_window);

}  // namespace internal

inline void StoreIcrc(uint8_t* p, uint32_t icrc) { StoreLe32(p, icrc); }

// A UDP socket does not report the IPv4 identification of a received packet.
// CRCs are linear, so it can be solved for: D = (received ICRC) xor (ICRC
// computed with an assumed ID) depends only on the xor of the two IDs and on
// the number of bytes after the field, and the map from ID to D is invertible.
//
// Returns the ID for which `received` is the right ICRC, if there is one.
// `computed` is the ICRC with `assumed_id`; `covered_size` is the size from BTH
// to pad. One in 65,536 arbitrary values of `received` has an ID, so this alone
// is a 16-bit check: see VerifyAnyId.
std::optional<uint16_t> SolveIpId(uint32_t received, uint32_t computed,
                                  uint16_t assumed_id, size_t covered_size);

// The same for the UDP source port, over IPv4 and IPv6. `computed` is the ICRC
// with `assumed_port`.
std::optional<uint16_t> SolveSourcePort(uint32_t received, uint32_t computed,
                                        uint16_t assumed_port,
                                        size_t covered_size);
// The same for the IPv4 source address. `computed` is the ICRC with `assumed`.
// Every `received` has a solution, so this alone checks nothing. `covered_size`
// must be that of a packet.
IpAddress SolveSourceV4(uint32_t received, uint32_t computed,
                        const IpAddress& assumed, size_t covered_size);

// How far a solved ID may be from the last one. Backward: reordered packets.
// Forward: IDs that the sender used for other destinations, and losses; this
// grows with the time since the last packet.
inline constexpr uint32_t kIpIdBackward = 64;
inline constexpr uint32_t kIpIdForward = 1024;
// The forward window after `elapsed_ns` without a packet of the flow. It grows
// by 16 IDs per microsecond and covers all IDs after 4 ms, so a sender whose
// counter runs on for other destinations is never locked out.
constexpr uint32_t IpIdForwardWindow(int64_t elapsed_ns) {
  if (elapsed_ns <= 0) return kIpIdForward;
  const int64_t grown = kIpIdForward + elapsed_ns / 1000 * 16;
  return grown < 0x10000 ? static_cast<uint32_t>(grown) : 0x10000;
}

// Whether `id` is in [last_id - kIpIdBackward, last_id + forward_window].
constexpr bool IsIpIdNear(uint16_t id, uint16_t last_id,
                          uint32_t forward_window = kIpIdForward) {
  // Unsigned 16-bit distance from the start of the window.
  const auto distance = static_cast<uint16_t>(id - last_id + kIpIdBackward);
  return distance <= kIpIdBackward + forward_window;
}

// Verifies a packet whose IPv4 identification is unknown (DF is assumed). It
// tries `segment_index` (the packet's position in its GRO batch, 0 if alone),
// then 0, then solves for the ID. A solved ID counts only if IsIpIdNear
// `last_id`, or if `last_id` is empty. Returns the ID, or nothing if the packet
// is bad.
//
// A damaged packet passes with a probability of about (2 + kIpIdBackward +
// forward_window) / 2^32, or 2^-16 while `last_id` is empty.
//
// `last_id` belongs to a flow (source address and port): the ID last returned
// for it.
//
// IPv6 has no identification: the check is exact, and 0 is returned for "good".
inline std::optional<uint16_t> VerifyAnyId(
    const IcrcFlow& flow, std::span<const uint8_t> udp_payload,
    uint16_t segment_index, std::optional<uint16_t> last_id,
    uint32_t forward_window = kIpIdForward) {
  if (udp_payload.size() < kBthSize + kIcrcSize) return std::nullopt;
  const size_t covered = udp_payload.size() - kIcrcSize;
  const uint32_t received = LoadLe32(udp_payload.data() + covered);
  const uint32_t computed =
      flow.Compute(udp_payload.first(covered), segment_index);
  if (received == computed) return flow.is_v4() ? segment_index : uint16_t{0};
  if (!flow.is_v4()) return std::nullopt;
  return internal::SolveAnyId(received, computed, segment_index, covered,
                              last_id, forward_window);
}

}  // namespace wire

#endif  // WIRE_ICRC_H_
