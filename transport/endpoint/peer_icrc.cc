#include "transport/endpoint/peer_icrc.h"

#include <algorithm>

#include "wire/packet.h"

namespace transport {
namespace {

// By how many packets one may be overtaken and its IP ID still be believed:
// twice what a peer puts into bursts. wire::VerifyAnyId alone allows for 64.
constexpr uint16_t kOvertaken = 512;

wire::IcrcFlow FlowOf(const Datagram& datagram) {
  return wire::IcrcFlow(datagram.source, datagram.destination,
                        datagram.source_port, wire::kRoceUdpPort);
}

}  // namespace

std::optional<uint16_t> PeerIcrc::VerifyUnknown(const Datagram& datagram) {
  return wire::VerifyAnyId(FlowOf(datagram), datagram.bytes,
                           datagram.segment_index, std::nullopt);
}

std::optional<uint16_t> PeerIcrc::Verify(const Datagram& datagram,
                                         Time now) const {
  if (!flow_ || source_port_ != datagram.source_port) {
    return VerifyUnknown(datagram);
  }
  // The window that is believed begins kOvertaken before the last ID.
  return wire::VerifyAnyId(
      *flow_, datagram.bytes, datagram.segment_index,
      static_cast<uint16_t>(last_ip_id_ - kOvertaken),
      std::min<uint32_t>(
          wire::IpIdForwardWindow(now - last_ip_id_time_) + kOvertaken,
          0x10000));
}

void PeerIcrc::Learn(const Datagram& datagram, uint16_t id, Time now) {
  last_ip_id_time_ = now;
  if (!flow_ || source_port_ != datagram.source_port) {
    flow_ = FlowOf(datagram);
    source_port_ = datagram.source_port;
    last_ip_id_ = id;
    return;
  }
  // One that was overtaken does not take the window back.
  if (static_cast<uint16_t>(last_ip_id_ - id) > kOvertaken) last_ip_id_ = id;
}

}  // namespace transport
