#include "wire/dc.h"

#include <cstring>

#include "wire/bytes.h"

namespace wire {
namespace {

// The bytes behind the AETH of an answer, as captured.
constexpr uint8_t kAnswerTail[kDcAnswerSize] = {0x10};

}  // namespace

void EmitDcEth(const DcEth& dceth, uint8_t opcode, uint8_t* packet) {
  const OpcodeInfo& info = GetOpcodeInfo(opcode);
  uint8_t* const p = packet + info.dceth_offset;
  StoreBe32(p, uint32_t{dceth.version} << 28 |
                   uint32_t{dceth.from_initiator} << 24 |
                   (dceth.src_qpn & kQpnMask));
  StoreBe32(p + 4, dceth.initiator_session & kQpnMask);
  StoreBe32(p + 8, dceth.responder_session & kQpnMask);
  StoreBe32(p + 12, dceth.dct & kQpnMask);
  StoreBe32(p + 16, 0);
  if (info.Has(kAeth)) StoreBe24(packet + info.aeth_offset + 1, 0);
}

size_t EmitDcHeaders(const Headers& headers, const DcEth& dceth, uint8_t* out) {
  const size_t size = EmitHeaders(headers, out);
  EmitDcEth(dceth, headers.bth.opcode, out);
  return size;
}

size_t EmitDcConnect(const Bth& bth, const DcEth& dceth, const DccEth& dcceth,
                     uint8_t* out) {
  Headers headers;
  headers.bth = bth;
  headers.bth.opcode = kOpcodeDcConnect;
  const size_t size = EmitDcHeaders(headers, dceth, out);
  uint8_t* const p = out + GetOpcodeInfo(kOpcodeDcConnect).dcceth_offset;
  StoreBe32(p, uint32_t{dcceth.flags} << 24);
  StoreBe32(p + 4, 0);
  StoreBe64(p + 8, dcceth.access_key);
  return size;
}

size_t EmitDcAnswer(const Bth& bth, const DcEth& dceth, uint8_t* out) {
  Headers headers;
  headers.bth = bth;
  headers.bth.opcode = MakeOpcode(Transport::kDc, Operation::kAcknowledge);
  headers.aeth.syndrome = kDcAnswerSyndrome;
  const size_t size = EmitDcHeaders(headers, dceth, out);
  std::memcpy(out + size, kAnswerTail, sizeof(kAnswerTail));
  return size + sizeof(kAnswerTail);
}

}  // namespace wire
