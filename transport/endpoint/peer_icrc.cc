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

bool PeerIcrc::VerifyUnknown(const Datagram& datagram) {
  return wire::VerifyAnyId(FlowOf(datagram), datagram.bytes,
                           datagram.segment_index, std::nullopt)
      .has_value();
}

bool PeerIcrc::Verify(const Datagram& datagram, Time now) {
  if (!flow_ || source_port_ != datagram.source_port) {
    flow_ = FlowOf(datagram);
    source_port_ = datagram.source_port;
    last_ip_id_.reset();
  }
  // The window that is believed begins kOvertaken before the last ID.
  std::optional<uint16_t> from = last_ip_id_;
  if (from) *from = static_cast<uint16_t>(*from - kOvertaken);
  const std::optional<uint16_t> id = wire::VerifyAnyId(
      *flow_, datagram.bytes, datagram.segment_index, from,
      std::min<uint32_t>(
          wire::IpIdForwardWindow(now - last_ip_id_time_) + kOvertaken,
          0x10000));
  if (!id) return false;
  last_ip_id_time_ = now;
  // One that was overtaken does not take the window back.
  if (!last_ip_id_ || static_cast<uint16_t>(*last_ip_id_ - *id) > kOvertaken) {
    last_ip_id_ = id;
  }
  return true;
}

}  // namespace transport
