#include "rxe_user/observe/trace_paths.h"

#include <algorithm>

#include "transport/congestion/path.h"
#include "wire/opcode.h"

namespace rxe_user::trace {
namespace {

using transport::Direction;
using transport::ObservedPacket;

constexpr uint8_t kCongestionExperienced = 3;  // ECN field

bool IsSent(const ObservedPacket& packet) {
  return packet.direction == Direction::kTransmitted;
}

// Whether the difference is more than 1/`part` of the value before.
bool Differs(uint64_t now, uint64_t before, uint64_t part) {
  const uint64_t difference = std::max(now, before) - std::min(now, before);
  return difference > before / part;
}

template <typename Map>
auto& Remember(Map* map, const typename Map::key_type& key, size_t most) {
  if (map->size() >= most && !map->contains(key)) map->clear();
  return (*map)[key];
}

}  // namespace

TracePaths::Events TracePaths::OnPacket(const ObservedPacket& packet,
                                        const EventHeader& header) {
  Events events;
  if (header.qpn == 0 || packet.bytes.empty()) return events;
  if (!IsSent(packet) && (packet.traffic_class & 3) == kCongestionExperienced) {
    OnMarked(header);
  }
  if (packet.bytes[0] == wire::kOpcodeCnp) events.cnp = OnCnp(packet, header);
  if (packet.path != nullptr) events.path = OnPath(packet, header);
  return events;
}

void TracePaths::OnMarked(const EventHeader& header) {
  QueuePair& qp = Remember(&queue_pairs_, header.qpn, kMax);
  if (qp.cause == 0 &&
      header.time - qp.cause_time >= transport::Path::kNotificationInterval) {
    qp.cause = header.id;
    qp.cause_time = header.time;
  }
  qp.marked = header.id;
}

std::optional<CnpEvent> TracePaths::OnCnp(const ObservedPacket& packet,
                                          const EventHeader& header) {
  QueuePair& qp = Remember(&queue_pairs_, header.qpn, kMax);
  CnpEvent event;
  event.header.qpn = header.qpn;
  event.header.cause = header.id;
  if (IsSent(packet)) {
    // The clocks of device and recording differ a little.
    event.header.cause = qp.cause != 0 ? qp.cause : qp.marked;
    qp.cause = qp.marked = 0;
  }
  event.way = static_cast<uint8_t>(IsSent(packet) ? WhichWay::kSent
                                                  : WhichWay::kReceived);
  if (packet.path == nullptr) return event;
  event.rate = packet.path->rate;
  if (!IsSent(packet)) {
    event.ignored = packet.path->cnps_ignored != qp.cnps_ignored;
    qp.cnps_ignored = packet.path->cnps_ignored;
  }
  return event;
}

std::optional<PathEvent> TracePaths::OnPath(const ObservedPacket& packet,
                                            const EventHeader& header) {
  const transport::ObservedPath& now = *packet.path;
  const wire::IpAddress& peer =
      IsSent(packet) ? packet.destination : packet.source;
  PathEvent& last = Remember(&paths_, peer, kMax);
  if (!Differs(now.window, last.window, 8) &&
      !Differs(now.rate, last.rate, 8) &&
      !Differs(static_cast<uint64_t>(now.round_trip), last.round_trip, 2)) {
    return std::nullopt;
  }
  last.header.qpn = header.qpn;
  last.header.cause = IsSent(packet) ? header.cause : header.id;
  last.window = now.window;
  last.in_flight = now.in_flight;
  last.rate = now.rate;
  last.round_trip = static_cast<uint64_t>(now.round_trip);
  std::copy(peer.bytes.begin(), peer.bytes.end(), last.peer);
  return last;
}

}  // namespace rxe_user::trace
