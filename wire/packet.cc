#include "wire/packet.h"

#include "wire/aeth.h"
#include "wire/dc.h"
#include "wire/psn.h"

namespace wire {
namespace {

// BTH as three words.
Bth LoadBth(const uint8_t* p) {
  const uint32_t first = LoadBe32(p);
  const uint32_t second = LoadBe32(p + 4);
  const uint32_t third = LoadBe32(p + 8);
  return {
      .opcode = static_cast<uint8_t>(first >> 24),
      .solicited = (first >> 23 & 1) != 0,
      .mig_req = (first >> 22 & 1) != 0,
      .pad_count = static_cast<uint8_t>(first >> 20 & 3),
      .transport_version = static_cast<uint8_t>(first >> 16 & 0xf),
      .pkey = static_cast<uint16_t>(first),
      .fecn = (second >> 31 & 1) != 0,
      .becn = (second >> 30 & 1) != 0,
      .dest_qpn = second & kQpnMask,
      .ack_req = (third >> 31 & 1) != 0,
      .psn = third & kPsnMask,
  };
}

// Only an ACKNOWLEDGE may carry a NAK; READ responses and atomic ACKs may not.
bool IsDefined(uint8_t opcode, uint8_t syndrome) {
  return AethKindOf(syndrome) == AethKind::kAck ||
         (OperationOf(opcode) == Operation::kAcknowledge &&
          !IsReserved(syndrome));
}

// An ACKNOWLEDGE of DC with `after` bytes behind its headers.
bool IsDcAnswer(const OpcodeInfo& info, const uint8_t* data, size_t after) {
  return info.Has(kDcEth) && info.Has(kAeth) && after == kDcAnswerSize &&
         OperationOf(data[0]) == Operation::kAcknowledge &&
         data[info.aeth_offset] == kDcAnswerSyndrome;
}

}  // namespace

void EmitBth(const Bth& bth, uint8_t* p) {
  StoreBe32(p, uint32_t{bth.opcode} << 24 | uint32_t{bth.solicited} << 23 |
                   uint32_t{bth.mig_req} << 22 | (bth.pad_count & 3u) << 20 |
                   (bth.transport_version & 0xfu) << 16 | bth.pkey);
  StoreBe32(p + 4, uint32_t{bth.fecn} << 31 | uint32_t{bth.becn} << 30 |
                       (bth.dest_qpn & kQpnMask));
  StoreBe32(p + 8, uint32_t{bth.ack_req} << 31 | (bth.psn & kPsnMask));
}

void EmitReth(const Reth& reth, uint8_t* p) {
  StoreBe64(p, reth.va);
  StoreBe32(p + 8, reth.rkey);
  StoreBe32(p + 12, reth.length);
}

size_t EmitHeaders(const Headers& h, uint8_t* out) {
  EmitBth(h.bth, out);
  const OpcodeInfo& info = GetOpcodeInfo(h.bth.opcode);
  if (info.extended == 0) return kBthSize;
  if (info.Has(kXrcEth))
    StoreBe32(out + info.xrceth_offset, h.xrc_srqn & kQpnMask);
  if (info.Has(kDeth)) {
    uint8_t* p = out + info.deth_offset;
    StoreBe32(p, h.deth.qkey);
    StoreBe32(p + 4, h.deth.src_qpn & kQpnMask);
  }
  if (info.Has(kFeth)) {
    StoreBe32(out + info.feth_offset,
              (h.feth.placement_type & 0xfu) | (h.feth.selectivity & 3u) << 4);
  }
  if (info.Has(kReth)) {
    EmitReth(h.reth, out + info.reth_offset);
  }
  if (info.Has(kAtomicEth)) {
    uint8_t* p = out + info.atomiceth_offset;
    StoreBe64(p, h.atomic.va);
    StoreBe32(p + 8, h.atomic.rkey);
    StoreBe64(p + 12, h.atomic.swap_or_add);
    StoreBe64(p + 20, h.atomic.compare);
  }
  if (info.Has(kAeth)) {
    uint8_t* p = out + info.aeth_offset;
    p[0] = h.aeth.syndrome;
    StoreBe24(p + 1, h.aeth.msn);
  }
  if (info.Has(kAtomicAckEth)) {
    StoreBe64(out + info.atomicacketh_offset, h.atomic_ack.original);
  }
  if (info.Has(kImmDt)) {
    std::memcpy(out + info.immdt_offset, &h.imm_be, sizeof(h.imm_be));
  }
  if (info.Has(kIeth)) StoreBe32(out + info.ieth_offset, h.invalidate_rkey);
  return info.header_length;
}

const char* ParseErrorName(ParseError error) {
  switch (error) {
    case ParseError::kOk:
      return "ok";
    case ParseError::kTooShort:
      return "too short";
    case ParseError::kUnknownOpcode:
      return "unknown opcode";
    case ParseError::kBadVersion:
      return "bad transport version";
    case ParseError::kBadPad:
      return "bad pad count";
    case ParseError::kBadLength:
      return "bad length";
    case ParseError::kBadSyndrome:
      return "reserved AETH syndrome";
  }
  return "?";
}

ParseError PacketView::Parse(std::span<const uint8_t> udp_payload,
                             PacketView* out) {
  const uint8_t* const data = udp_payload.data();
  const size_t size = udp_payload.size();
  if (size < kBthSize + kIcrcSize) return ParseError::kTooShort;
  const OpcodeInfo* shape = &GetOpcodeInfo(data[0]);
  const OpcodeInfo& info = *shape;
  if (info.header_length == 0) return ParseError::kUnknownOpcode;
  if (size < info.header_length + kIcrcSize) return ParseError::kTooShort;
  size_t after_headers = size - info.header_length - kIcrcSize;
  if (size % 4 != 0) return ParseError::kBadLength;
  if (after_headers != 0 && info.is_response && !info.carries_payload) {
    if (!IsDcAnswer(info, data, after_headers)) return ParseError::kBadLength;
    shape = &GetDcAnswerInfo();
    after_headers = 0;
  }
  if ((data[1] & 0xf) != 0) return ParseError::kBadVersion;
  const size_t pad = data[1] >> 4 & 3;
  if (pad > after_headers) return ParseError::kBadPad;
  if (info.Has(kAeth) && !IsDefined(data[0], data[info.aeth_offset])) {
    return ParseError::kBadSyndrome;
  }

  out->data_ = data;
  out->info_ = shape;
  out->payload_size_ = after_headers - pad;
  out->bth_ = LoadBth(data);
  return ParseError::kOk;
}

Headers PacketView::headers() const {
  Headers h;
  h.bth = bth_;
  if (info_->Has(kXrcEth)) h.xrc_srqn = xrc_srqn();
  if (info_->Has(kDeth)) h.deth = deth();
  if (info_->Has(kFeth)) h.feth = feth();
  if (info_->Has(kReth)) h.reth = reth();
  if (info_->Has(kAtomicEth)) h.atomic = atomic();
  if (info_->Has(kAeth)) h.aeth = aeth();
  if (info_->Has(kAtomicAckEth)) h.atomic_ack = atomic_ack();
  if (info_->Has(kImmDt)) h.imm_be = imm_be();
  if (info_->Has(kIeth)) h.invalidate_rkey = invalidate_rkey();
  return h;
}

}  // namespace wire
