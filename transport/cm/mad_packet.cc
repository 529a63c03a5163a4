#include "transport/cm/mad_packet.h"

#include <cstring>
#include <optional>

#include "wire/icrc.h"
#include "wire/opcode.h"
#include "wire/packet.h"
#include "wire/psn.h"

namespace transport::cm {
namespace {

constexpr uint8_t kUdSendOnly =
    wire::MakeOpcode(wire::Transport::kUd, wire::Operation::kSendOnly);
// The upper bit distinguishes full from limited members (10.9.1.2).
constexpr uint16_t kPartition = 0x7fff;

wire::IcrcFlow IcrcFlowOf(const MadFlow& flow) {
  return wire::IcrcFlow(flow.source, flow.destination, flow.source_port,
                        wire::kRoceUdpPort);
}

}  // namespace

void EmitMadPacket(const MadFlow& flow, uint32_t psn,
                   std::span<const uint8_t, wire::kMadSize> mad,
                   std::span<uint8_t, kMadPacketSize> out) {
  wire::Headers headers;
  headers.bth.opcode = kUdSendOnly;
  headers.bth.dest_qpn = wire::kGsiQpn;
  headers.bth.psn = psn & wire::kPsnMask;
  headers.deth = {.qkey = wire::kGsiQkey, .src_qpn = wire::kGsiQpn};
  const size_t size = wire::EmitHeaders(headers, out.data());
  std::memcpy(out.data() + size, mad.data(), mad.size());
  IcrcFlowOf(flow).Store(out, /*ip_id=*/0);
}

MadPacketError ParseMadPacket(const MadFlow& flow,
                              std::span<const uint8_t> udp_payload,
                              std::span<const uint8_t>* mad) {
  wire::PacketView packet;
  if (wire::PacketView::Parse(udp_payload, &packet) != wire::ParseError::kOk) {
    return MadPacketError::kMalformed;
  }
  if (packet.opcode() != kUdSendOnly ||
      packet.bth().dest_qpn != wire::kGsiQpn) {
    return MadPacketError::kOtherQp;
  }
  if (packet.payload().size() != wire::kMadSize) {
    return MadPacketError::kMalformed;
  }
  if ((packet.bth().pkey & kPartition) != kPartition ||
      packet.deth().qkey != wire::kGsiQkey) {
    return MadPacketError::kBadKey;
  }
  *mad = packet.payload();
  return VerifyMadPacket(flow, udp_payload) ? MadPacketError::kOk
                                            : MadPacketError::kBadIcrc;
}

bool VerifyMadPacket(const MadFlow& flow,
                     std::span<const uint8_t> udp_payload) {
  return wire::VerifyAnyId(IcrcFlowOf(flow), udp_payload, 0, std::nullopt)
      .has_value();
}

}  // namespace transport::cm
