#include "transport/endpoint/peer_icrc.h"

#include <algorithm>

#include "wire/packet.h"

namespace transport {
namespace {

wire::IcrcFlow FlowOf(const Datagram& datagram) {
  return wire::IcrcFlow(datagram.source, datagram.destination,
                        datagram.source_port, wire::kRoceUdpPort);
}

std::optional<uint16_t> FindAnyId(const Datagram& datagram) {
  return wire::VerifyAnyId(FlowOf(datagram), datagram.bytes,
                           datagram.segment_index, std::nullopt);
}

}  // namespace

bool PeerIcrc::VerifyUnknown(const Datagram& datagram) {
  return FindAnyId(datagram).has_value();
}

bool PeerIcrc::VerifyOther(const Datagram& datagram) {
  const std::optional<uint16_t> id = FindAnyId(datagram);
  if (id) found_ = *id;
  return id.has_value();
}

bool PeerIcrc::Verify(const Datagram& datagram, Time now) {
  // The window that is believed begins kOvertaken before the last ID.
  const std::optional<uint16_t> id = wire::VerifyAnyId(
      *flow_, datagram.bytes, datagram.segment_index,
      static_cast<uint16_t>(last_ip_id_ - kOvertaken),
      std::min<uint32_t>(
          wire::IpIdForwardWindow(now - last_ip_id_time_) + kOvertaken,
          0x10000));
  if (id) found_ = *id;
  return id.has_value();
}

void PeerIcrc::Adopt(const Datagram& datagram) {
  flow_ = FlowOf(datagram);
  source_port_ = datagram.source_port;
  last_ip_id_ = found_;
}

}  // namespace transport
