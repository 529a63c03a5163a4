#include "transport/endpoint/peer_icrc.h"

#include <algorithm>
#include <cassert>

#include "wire/bytes.h"
#include "wire/packet.h"

namespace transport {
namespace {

wire::IcrcFlow FlowOf(const Datagram& datagram) {
  return wire::IcrcFlow(datagram.source, datagram.destination,
                        datagram.source_port, wire::kRoceUdpPort);
}

std::optional<uint16_t> FindAnyId(const wire::IcrcFlow& flow,
                                  const Datagram& datagram) {
  return wire::VerifyAnyId(flow, datagram.bytes, datagram.segment_index,
                           std::nullopt);
}

}  // namespace

bool PeerIcrc::VerifyUnknown(const Datagram& datagram) {
  return FindAnyId(FlowOf(datagram), datagram).has_value();
}

bool PeerIcrc::VerifyOther(const Datagram& datagram) {
  const std::optional<uint16_t> id = FindAnyId(FlowOf(datagram), datagram);
  if (id) found_ = *id;
  return id.has_value();
}

// As wire::VerifyAnyId, for the known flow.
bool PeerIcrc::Verify(const Datagram& datagram, Time now) {
  assert(datagram.bytes.size() >= wire::kBthSize + wire::kIcrcSize);
  const uint16_t usual = datagram.segment_index;
  const size_t covered = datagram.bytes.size() - wire::kIcrcSize;
  const uint32_t received = wire::LoadLe32(datagram.bytes.data() + covered);
  const uint32_t computed =
      flow_->Compute(datagram.bytes.first(covered), usual);
  if (received == computed) [[likely]] {
    found_ = usual;
    return true;
  }
  if (!flow_->is_v4()) return IsAccepted(std::nullopt, now);
  return IsAccepted(wire::SolveIpId(received, computed, usual, covered), now);
}

bool PeerIcrc::IsAccepted(std::optional<uint16_t> id, Time now) {
  is_far_ = id.has_value();
  if (!id) return false;
  found_ = *id;
  return found_ == 0 || far_ == kFarForUnordered ||
         IsNear(wire::IpIdForwardWindow(now - last_ip_id_time_));
}

// The window starts kReorderTolerance before the last ID.
bool PeerIcrc::IsNear(uint32_t forward_window) const {
  return wire::IsIpIdNear(
      found_, static_cast<uint16_t>(last_ip_id_ - kReorderTolerance),
      std::min<uint32_t>(forward_window + kReorderTolerance, 0x10000));
}

bool PeerIcrc::AcceptUnordered() {
  near_ = 0;
  if (!is_far_) {
    far_ = 0;
    return false;
  }
  return ++far_ == kFarForUnordered;
}

void PeerIcrc::NoteNear() {
  // An ID that is near only because of elapsed time does not count: it may be
  // any.
  if (!IsNear(wire::kIpIdForward)) {
    near_ = 0;
  } else if (far_ < kFarForUnordered || ++near_ == kNearForCounting) {
    far_ = near_ = 0;
  }
}

void PeerIcrc::AdoptFrom(const Datagram& datagram) {
  Adopt(FlowOf(datagram), datagram.source_port);
}

void PeerIcrc::Adopt(const wire::IcrcFlow& flow, uint16_t port) {
  flow_ = flow;
  source_port_ = port;
  last_ip_id_ = found_;
  far_ = near_ = 0;
}

}  // namespace transport
