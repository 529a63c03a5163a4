#include "wire/packet.h"

#include "wire/aeth.h"
#include "wire/dc.h"

namespace wire {
namespace {

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

size_t EmitHeaders(const Headers& h, uint8_t* out) {
  EmitBth(h.bth, out);
  const OpcodeInfo& info = GetOpcodeInfo(h.bth.opcode);
  if (info.extended == 0) return kBthSize;
  if (info.Has(kXrcEth)) EmitXrcEth(h.xrc_srqn, out + info.xrceth_offset);
  if (info.Has(kDeth)) EmitDeth(h.deth, out + info.deth_offset);
  if (info.Has(kFeth)) EmitFeth(h.feth, out + info.feth_offset);
  if (info.Has(kReth)) EmitReth(h.reth, out + info.reth_offset);
  if (info.Has(kAtomicEth)) {
    EmitAtomicEth(h.atomic, out + info.atomiceth_offset);
  }
  if (info.Has(kAeth)) EmitAeth(h.aeth, out + info.aeth_offset);
  if (info.Has(kAtomicAckEth)) {
    EmitAtomicAckEth(h.atomic_ack, out + info.atomicacketh_offset);
  }
  if (info.Has(kImmDt)) EmitImmDt(h.imm_be, out + info.immdt_offset);
  if (info.Has(kIeth)) EmitIeth(h.invalidate_rkey, out + info.ieth_offset);
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
  for (size_t i = 0; i < kBthSize / 4; ++i) {
    out->bth_[i] = LoadBe32(data + 4 * i);
  }
  return ParseError::kOk;
}

Headers PacketView::headers() const {
  Headers h;
  h.bth = bth();
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
