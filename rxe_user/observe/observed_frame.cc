#include "rxe_user/observe/observed_frame.h"

#include <optional>

#include "wire/frame.h"
#include "wire/icrc.h"

namespace rxe_user {
namespace {

using transport::Direction;
using transport::Disposition;
using transport::ObservedPacket;

// The packet's IP identification. A socket does not report that of received
// packets, so it is found as the one that the ICRC covers.
uint16_t IpIdOf(const ObservedPacket& packet) {
  if (packet.direction == Direction::kTransmitted ||
      packet.disposition == Disposition::kBadIcrc) {
    return packet.segment_index;
  }
  const wire::IcrcFlow flow(packet.source, packet.destination,
                            packet.source_port, wire::kRoceUdpPort);
  return wire::VerifyAnyId(flow, packet.bytes, packet.segment_index,
                           std::nullopt)
      .value_or(packet.segment_index);
}

}  // namespace

size_t EmitFrameHeaders(const ObservedPacket& packet, bool is_whole,
                        uint8_t* out) {
  wire::FrameHeaders headers;
  headers.src = packet.source;
  headers.dst = packet.destination;
  headers.src_port = packet.source_port;
  headers.dst_port = wire::kRoceUdpPort;
  headers.tos = packet.traffic_class;
  headers.ttl = packet.hop_limit;
  if (headers.ttl == 0 && packet.direction == Direction::kTransmitted) {
    headers.ttl = wire::kDefaultHopLimit;  // the port's default
  }
  if (is_whole) {
    if (headers.src.is_v4()) headers.ip_id = IpIdOf(packet);
    headers.udp_checksum = wire::UdpChecksum(headers, packet.bytes);
  } else {
    headers.ip_id = packet.segment_index;
  }
  wire::EmitCooked(packet.direction == Direction::kTransmitted,
                   headers.src.is_v4() && headers.dst.is_v4(), out);
  return wire::kCookedSize +
         wire::EmitIpUdp(headers, packet.bytes.size(), out + wire::kCookedSize);
}

}  // namespace rxe_user
