// A RoCEv2 packet: the UDP payload, from BTH to ICRC.
//
// `PacketView` is a checked view of received bytes; its accessors need no
// further checks. `Headers` is the plain structure that is emitted.

#ifndef WIRE_PACKET_H_
#define WIRE_PACKET_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "wire/bytes.h"
#include "wire/headers.h"
#include "wire/opcode.h"
#include "wire/psn.h"

namespace wire {

// The destination port of all RoCEv2 traffic (A17).
inline constexpr uint16_t kRoceUdpPort = 4791;

// BTH and every extended header; `bth.opcode` says which of them are used.
struct Headers {
  Bth bth;
  Deth deth;
  Reth reth;
  AtomicEth atomic;
  Aeth aeth;
  AtomicAckEth atomic_ack;
  uint32_t imm_be = 0;  // in memory order: the verbs' __be32
  uint32_t invalidate_rkey = 0;
  uint32_t xrc_srqn = 0;  // 24 bits
  Feth feth;

  bool operator==(const Headers&) const = default;
};

// Writes one header at `out`.
inline void EmitBth(const Bth& bth, uint8_t* out) {
  StoreBe32(out, uint32_t{bth.opcode} << 24 | uint32_t{bth.solicited} << 23 |
                     uint32_t{bth.mig_req} << 22 | (bth.pad_count & 3u) << 20 |
                     (bth.transport_version & 0xfu) << 16 | bth.pkey);
  StoreBe32(out + 4, uint32_t{bth.fecn} << 31 | uint32_t{bth.becn} << 30 |
                         (bth.dest_qpn & kQpnMask));
  StoreBe32(out + 8, uint32_t{bth.ack_req} << 31 | (bth.psn & kPsnMask));
}
inline void EmitXrcEth(uint32_t srqn, uint8_t* out) {
  StoreBe32(out, srqn & kQpnMask);
}
inline void EmitDeth(const Deth& deth, uint8_t* out) {
  StoreBe32(out, deth.qkey);
  StoreBe32(out + 4, deth.src_qpn & kQpnMask);
}
inline void EmitFeth(const Feth& feth, uint8_t* out) {
  StoreBe32(out, (feth.placement_type & 0xfu) | (feth.selectivity & 3u) << 4);
}
inline void EmitReth(const Reth& reth, uint8_t* out) {
  StoreBe64(out, reth.va);
  StoreBe32(out + 8, reth.rkey);
  StoreBe32(out + 12, reth.length);
}
inline void EmitAtomicEth(const AtomicEth& atomic, uint8_t* out) {
  StoreBe64(out, atomic.va);
  StoreBe32(out + 8, atomic.rkey);
  StoreBe64(out + 12, atomic.swap_or_add);
  StoreBe64(out + 20, atomic.compare);
}
inline void EmitAeth(const Aeth& aeth, uint8_t* out) {
  StoreBe32(out, uint32_t{aeth.syndrome} << 24 | (aeth.msn & kPsnMask));
}
inline void EmitAtomicAckEth(const AtomicAckEth& ack, uint8_t* out) {
  StoreBe64(out, ack.original);
}
inline void EmitImmDt(uint32_t imm_be, uint8_t* out) {
  std::memcpy(out, &imm_be, sizeof(imm_be));
}
inline void EmitIeth(uint32_t rkey, uint8_t* out) { StoreBe32(out, rkey); }

// Writes BTH and the opcode's extended headers in wire order. Returns their
// size in bytes (GetOpcodeInfo(opcode).header_length). `out` holds
// kMaxHeaderSize. Reserved fields become zero. An unknown opcode gets BTH only.
// DCETH and DCCETH are left out, but not their space: see dc.h.
size_t EmitHeaders(const Headers& headers, uint8_t* out);

// The pad that completes a payload to a multiple of four bytes.
constexpr uint8_t PadCount(size_t payload_size) {
  return static_cast<uint8_t>(-payload_size & 3);
}

// The destination queue pair of a possible packet; absent if too short. Checks
// nothing else.
inline std::optional<uint32_t> PeekDestQpn(
    std::span<const uint8_t> udp_payload) {
  if (udp_payload.size() < kBthSize) return std::nullopt;
  return LoadBe24(udp_payload.data() + kBthDestQpnOffset);
}

// Why bytes are not a packet, in order of the checks.
enum class ParseError : uint8_t {
  kOk,
  kTooShort,  // for BTH and ICRC, or for the opcode's headers
  // Or not in RoCEv2; but see OpcodeInfo::reserved.
  kUnknownOpcode,
  // Not a multiple of 4 bytes including the pad; or a response with payload
  // although its opcode has none, such as an ACK.
  kBadLength,
  kBadVersion,  // transport header version other than 0
  kBadPad,      // pad larger than the payload
  // AETH with a reserved kind or NAK code (9.7.5.2), or a NAK in a packet other
  // than an ACKNOWLEDGE.
  kBadSyndrome,
};
// A name such as "unknown opcode".
const char* ParseErrorName(ParseError error);

// A checked view of a received packet. Points into the caller's bytes, which
// must outlive it. Does not check the ICRC: see icrc.h.
class PacketView {
 public:
  // An empty view. It may only be assigned to.
  PacketView() = default;

  // Checks `udp_payload` (BTH to ICRC inclusive) and sets `*out` to view it.
  // Never reads outside of `udp_payload`. On error `*out` is unchanged.
  //
  // Checks that need the queue pair are not made: path MTU, and payload in a
  // packet whose opcode has none.
  static ParseError Parse(std::span<const uint8_t> udp_payload,
                          PacketView* out);

  // Decodes the copy of BTH at each call.
  Bth bth() const {
    return {
        .opcode = opcode(),
        .solicited = solicited(),
        .mig_req = (bth_[0] >> 22 & 1) != 0,
        .pad_count = pad_count(),
        .transport_version = static_cast<uint8_t>(bth_[0] >> 16 & 0xf),
        .pkey = pkey(),
        .fecn = (bth_[1] >> 31 & 1) != 0,
        .becn = (bth_[1] >> 30 & 1) != 0,
        .dest_qpn = dest_qpn(),
        .ack_req = ack_req(),
        .psn = psn(),
    };
  }
  bool solicited() const { return (bth_[0] >> 23 & 1) != 0; }
  uint16_t pkey() const { return static_cast<uint16_t>(bth_[0]); }
  uint32_t dest_qpn() const { return bth_[1] & kQpnMask; }
  bool ack_req() const { return (bth_[2] >> 31 & 1) != 0; }
  uint32_t psn() const { return bth_[2] & kPsnMask; }
  uint8_t opcode() const { return static_cast<uint8_t>(bth_[0] >> 24); }
  Transport transport() const { return TransportOf(opcode()); }
  Operation operation() const { return OperationOf(opcode()); }
  const OpcodeInfo& info() const { return *info_; }
  // The answer to a DC connect, an ACKNOWLEDGE by its opcode.
  bool is_dc_answer() const { return info_ == &GetDcAnswerInfo(); }

  // Whether a UC packet requests a report (kUcReportRequest).
  bool requests_uc_report() const {
    return (data_[kBthAckReqOffset] & kUcReportRequest) == kUcReportRequest;
  }

  // Decodes an extended header at each call. Requires info().Has() of it.
  DcEth dceth() const {
    const uint8_t* p = data_ + info_->dceth_offset;
    return {.version = static_cast<uint8_t>(p[0] >> 4),
            .from_initiator = (p[0] & 1) != 0,
            .src_qpn = LoadBe24(p + 1),
            .initiator_session = LoadBe24(p + 5),
            .responder_session = LoadBe24(p + 9),
            .dct = LoadBe24(p + 13)};
  }
  DccEth dcceth() const {
    const uint8_t* p = data_ + info_->dcceth_offset;
    return {.flags = p[0], .access_key = LoadBe64(p + 8)};
  }
  Deth deth() const {
    const uint8_t* p = data_ + info_->deth_offset;
    return {.qkey = LoadBe32(p), .src_qpn = LoadBe24(p + 5)};
  }
  Reth reth() const {
    const uint8_t* p = data_ + info_->reth_offset;
    return {
        .va = LoadBe64(p), .rkey = LoadBe32(p + 8), .length = LoadBe32(p + 12)};
  }
  AtomicEth atomic() const {
    const uint8_t* p = data_ + info_->atomiceth_offset;
    return {.va = LoadBe64(p),
            .rkey = LoadBe32(p + 8),
            .swap_or_add = LoadBe64(p + 12),
            .compare = LoadBe64(p + 20)};
  }
  Aeth aeth() const {
    const uint8_t* p = data_ + info_->aeth_offset;
    return {.syndrome = p[0], .msn = LoadBe24(p + 1)};
  }
  AtomicAckEth atomic_ack() const {
    return {.original = LoadBe64(data_ + info_->atomicacketh_offset)};
  }
  uint32_t imm_be() const {
    uint32_t v;
    std::memcpy(&v, data_ + info_->immdt_offset, sizeof(v));
    return v;
  }
  uint32_t invalidate_rkey() const {
    return LoadBe32(data_ + info_->ieth_offset);
  }
  uint32_t xrc_srqn() const {
    return LoadBe24(data_ + info_->xrceth_offset + 1);
  }
  Feth feth() const {
    const uint8_t b = data_[info_->feth_offset + 3];
    return {.placement_type = static_cast<uint8_t>(b & 0xf),
            .selectivity = static_cast<uint8_t>(b >> 4 & 3)};
  }
  // All headers but DCETH and DCCETH; those that the opcode does not have are
  // zero.
  Headers headers() const;

  // The bytes between headers and pad. A CNP's 16 zero bytes count as payload.
  std::span<const uint8_t> payload() const {
    return {data_ + info_->header_length, payload_size_};
  }
  // BTH to pad: the part of the UDP payload that the ICRC covers.
  std::span<const uint8_t> bytes_covered() const {
    return {data_, info_->header_length + payload_size_ + pad_count()};
  }
  // The received ICRC as a number, comparable with IcrcFlow::Compute.
  uint32_t icrc() const {
    return LoadLe32(data_ + info_->header_length + payload_size_ + pad_count());
  }
  // The bytes that were given to Parse.
  std::span<const uint8_t> udp_payload() const {
    return {data_,
            info_->header_length + payload_size_ + pad_count() + kIcrcSize};
  }

 private:
  uint8_t pad_count() const { return static_cast<uint8_t>(bth_[0] >> 20 & 3); }

  const uint8_t* data_ = nullptr;
  const OpcodeInfo* info_ = nullptr;
  size_t payload_size_ = 0;
  // BTH as three words in host order, so that its fields need no byte swaps.
  uint32_t bth_[kBthSize / 4] = {};
};

}  // namespace wire

#endif  // WIRE_PACKET_H_
