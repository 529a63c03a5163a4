#include "tests/fuzz/endpoint_forger.h"

#include <algorithm>

#include "transport/base/qp_report.h"
#include "wire/headers.h"
#include "wire/icrc.h"
#include "wire/opcode.h"
#include "wire/packet.h"

namespace fuzz {
namespace {

using sim::Region;
using transport::QpReport;

constexpr uint16_t kForeignPort = 0x8888;
constexpr size_t kMaxSegments = 8;
// Longer than a path MTU of 1,024 bytes.
constexpr uint32_t kMaxPayload = 1100;

uint32_t ForgePsn(FuzzInput& input, const QpReport& victim,
                  const QpReport& peer) {
  const uint8_t how = input.Byte();
  uint32_t base = 0;
  switch (how % 5) {
    case 0:
      base = victim.expected_psn;
      break;
    case 1:
      base = victim.send_psn;
      break;
    case 2:
      base = victim.unacked_psn;
      break;
    case 3:
      base = peer.unacked_psn;
      break;
    case 4:
      return input.Take<uint32_t>();
  }
  const int delta = input.Signed();
  // From within a window to beyond all windows.
  return base + delta * (how & 0x80 ? 257 : how & 0x40 ? 17 : 1);
}

uint32_t ForgeKey(FuzzInput& input, const Region& region,
                  const Region& forbidden) {
  switch (input.Below(8)) {
    case 0:
      return region.lkey;
    case 1:
      return region.rkey + 1;
    case 2:
      return forbidden.rkey;
    case 3:
      return input.Take<uint32_t>();
    default:
      return region.rkey;
  }
}

uint64_t ForgeAddress(FuzzInput& input, const Region& region,
                      const Region& forbidden) {
  switch (input.Below(8)) {
    case 0:
      return region.va - 1;
    case 1:
      return region.va + region.length - input.Byte();
    case 2:
      return input.Take<uint64_t>();
    case 3:
      return reinterpret_cast<uint64_t>(region.data) + input.Byte();
    case 4:
      return forbidden.va + input.Byte();
    default:
      return region.va + input.Take<uint16_t>() % region.length;
  }
}

wire::Headers ForgeHeaders(FuzzInput& input, const sim::Pair::Side& victim,
                           const sim::Pair::Side& peer,
                           const Region& forbidden) {
  const Region& region = victim.region;
  wire::Headers headers;
  const uint8_t opcode = input.Byte();
  const uint8_t own = victim.qp->config().type == transport::QpType::kUc
                          ? wire::MakeOpcode(wire::Transport::kUc, {})
                          : 0;
  // Mostly an opcode of the queue pair's service.
  headers.bth.opcode = opcode & 0x80 ? input.Byte() : own | (opcode & 0x1f);
  const uint8_t bits = input.Byte();
  headers.bth.solicited = bits & 1;
  headers.bth.ack_req = bits & 2;
  headers.bth.fecn = bits & 4;
  headers.bth.becn = bits & 8;
  headers.bth.mig_req = bits & 16;
  if (bits & 32) headers.bth.pkey = input.Take<uint16_t>();
  headers.bth.transport_version = (bits & 0xc0) == 0xc0 ? 1 : 0;
  headers.bth.dest_qpn = victim.qp->qpn();
  headers.bth.psn = ForgePsn(input, victim.qp->Report(), peer.qp->Report());
  const wire::OpcodeInfo& info = wire::GetOpcodeInfo(headers.bth.opcode);
  if (info.Has(wire::kReth)) {
    headers.reth.va = ForgeAddress(input, region, forbidden);
    headers.reth.rkey = ForgeKey(input, region, forbidden);
    headers.reth.length = input.Below(4) == 0 ? input.Take<uint32_t>()
                                              : input.Take<uint16_t>() % 8192;
  }
  if (info.Has(wire::kAtomicEth)) {
    headers.atomic = {ForgeAddress(input, region, forbidden),
                      ForgeKey(input, region, forbidden), input.Byte(),
                      input.Byte()};
    if (input.Byte() & 1) headers.atomic.va &= ~uint64_t{7};
  }
  if (info.Has(wire::kAeth)) {
    headers.aeth = {input.Byte(), input.Take<uint32_t>()};
  }
  if (info.Has(wire::kIeth)) {
    headers.invalidate_rkey = ForgeKey(input, region, forbidden);
  }
  if (info.Has(wire::kFeth)) headers.feth = {input.Byte(), input.Byte()};
  return headers;
}

size_t ForgePayloadSize(FuzzInput& input, const wire::Headers& headers,
                        uint32_t mtu) {
  switch (input.Below(6)) {
    case 0:
      return 0;
    case 1:
      return input.Take<uint16_t>() % kMaxPayload;
    case 2:
      return input.Byte();
    case 3:
      return std::min(headers.reth.length, kMaxPayload);
    default:
      return mtu;
  }
}

// Raw bytes; only the queue pair number is correct.
std::vector<uint8_t> RawPacket(FuzzInput& input, uint32_t qpn) {
  const std::span<const uint8_t> raw = input.Bytes(input.Byte());
  std::vector<uint8_t> packet(raw.begin(), raw.end());
  if (packet.size() >= wire::kBthSize) {
    wire::StoreBe24(packet.data() + wire::kBthDestQpnOffset, qpn);
  }
  return packet;
}

}  // namespace

ForgedBatch Forge(FuzzInput& input, Sender sender,
                  const sim::Pair::Side& victim, const sim::Pair::Side& peer,
                  const Region& forbidden) {
  ForgedBatch forged;
  transport::GroBatch& batch = forged.batch;
  batch.source = peer.node->address();
  batch.destination = victim.node->address();
  batch.source_port = peer.attributes.av.source_port;
  batch.hop_limit = 64;
  const uint8_t bits = input.Byte();
  batch.traffic_class = bits & 3;  // ECN
  if (sender == Sender::kOtherPort) batch.source_port = kForeignPort;
  if (sender == Sender::kElsewhere) {
    (bits & 4 ? batch.destination : batch.source).bytes[15] ^= 0x40;
  }
  const size_t segments = bits & 8 ? 1 + (bits >> 4) % kMaxSegments : 1;
  const wire::IcrcFlow flow(batch.source, batch.destination, batch.source_port,
                            wire::kRoceUdpPort);
  const uint8_t shape = input.Byte();
  // The sender chooses an IP identification. With the peer's port and PSNs in
  // its window it could change the expected identification (SECURITY.md), and
  // the simulated network would count good packets as damaged. So it stays
  // small there.
  uint16_t ip_id = shape & 1 ? input.Take<uint16_t>() : 0;
  if (sender == Sender::kPeer) ip_id %= 32;
  forged.icrc_right = (shape & 0x0e) != 0x0e;

  std::vector<uint8_t> packet;
  if ((shape & 0x70) == 0x70) {
    packet = RawPacket(input, victim.qp->qpn());
  } else {
    wire::Headers headers = ForgeHeaders(input, victim, peer, forbidden);
    const size_t payload =
        ForgePayloadSize(input, headers, victim.attributes.path_mtu);
    // Correct padding, or not.
    headers.bth.pad_count =
        shape & 0x80 ? input.Byte() & 3 : wire::PadCount(payload);
    packet.resize(wire::kMaxHeaderSize);
    packet.resize(wire::EmitHeaders(headers, packet.data()));
    packet.resize(packet.size() + payload, input.Byte());
    packet.resize(packet.size() + (shape & 0x80 ? 0 : headers.bth.pad_count) +
                  wire::kIcrcSize);
  }
  const bool whole = packet.size() >= wire::kBthSize + wire::kIcrcSize;
  // With the bit that asks for a report on UC.
  if (whole && (bits & 0x80) != 0) {
    packet[wire::kBthAckReqOffset] |= wire::kUcReportRequest;
  }
  forged.segment_size = std::max<size_t>(packet.size(), 1);
  for (size_t i = 0; i < segments; ++i) {
    if (whole) {
      flow.Store(packet, static_cast<uint16_t>(ip_id + i));
      if (!forged.icrc_right) packet.back() ^= 0x5a;
    }
    forged.bytes.insert(forged.bytes.end(), packet.begin(), packet.end());
    if (!whole) break;
    uint8_t* const psn = packet.data() + wire::kBthPsnOffset;
    wire::StoreBe24(psn, (wire::LoadBe24(psn) + 1) & 0xffffff);
  }
  batch.bytes = forged.bytes;
  batch.segment_size = forged.segment_size;
  return forged;
}

}  // namespace fuzz
