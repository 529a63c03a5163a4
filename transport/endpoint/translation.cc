#include "transport/endpoint/translation.h"

#include "wire/opcode.h"
#include "wire/packet.h"

namespace transport {
namespace {

// RoCEv2 source ports (annex A17).
constexpr uint16_t kFirstSourcePort = 0xc000;

wire::IcrcFlow FlowFrom(const wire::IpAddress& source, uint16_t port,
                        const Datagram& datagram) {
  return wire::IcrcFlow(source, datagram.destination, port, wire::kRoceUdpPort);
}

// Linux's UDP_MAX_SEGMENTS: the packets of a burst of our devices have the IP
// IDs below this.
constexpr uint16_t kOurIds = 128;

std::optional<uint16_t> FindOurId(const wire::IcrcFlow& flow,
                                  const Datagram& datagram) {
  const std::optional<uint16_t> id = wire::VerifyAnyId(
      flow, datagram.bytes, datagram.segment_index, std::nullopt);
  return id.has_value() && *id < kOurIds ? id : std::nullopt;
}

std::optional<TrueSource> MatchPort(const Datagram& datagram,
                                    const wire::IpAddress& peer,
                                    uint16_t port) {
  const wire::IcrcFlow flow = FlowFrom(peer, port, datagram);
  const std::optional<uint16_t> id = FindOurId(flow, datagram);
  if (!id) return std::nullopt;
  return TrueSource{.address = peer, .port = port, .ip_id = *id, .flow = flow};
}

size_t CoveredSize(const Datagram& datagram) {
  return datagram.bytes.size() - wire::kIcrcSize;
}

uint32_t ReceivedIcrc(const Datagram& datagram) {
  return wire::LoadLe32(datagram.bytes.data() + CoveredSize(datagram));
}

}  // namespace

std::optional<TrueSource> Translations::Match(const Datagram& datagram,
                                              const wire::IpAddress& peer,
                                              bool any_port) {
  if (peer.is_v4() != datagram.destination.is_v4()) return std::nullopt;
  if (auto found = MatchPort(datagram, peer, wire::kRoceUdpPort)) return found;
  if (auto found = MatchPort(datagram, peer, datagram.source_port)) {
    return found;
  }
  if (!any_port) return std::nullopt;
  const size_t covered = CoveredSize(datagram);
  for (const uint16_t id : {datagram.segment_index, uint16_t{0}}) {
    const std::optional<uint16_t> port =
        wire::SolveSourcePort(ReceivedIcrc(datagram),
                              FlowFrom(peer, kFirstSourcePort, datagram)
                                  .Compute(datagram.bytes.first(covered), id),
                              kFirstSourcePort, covered);
    if (port.has_value() && *port >= kFirstSourcePort) {
      return TrueSource{.address = peer,
                        .port = *port,
                        .ip_id = id,
                        .flow = FlowFrom(peer, *port, datagram)};
    }
  }
  return std::nullopt;
}

std::optional<TrueSource> Translations::SolveSource(const Datagram& datagram) {
  if (!datagram.source.is_v4() || !datagram.destination.is_v4()) {
    return std::nullopt;
  }
  const size_t covered = CoveredSize(datagram);
  const wire::IcrcFlow flow =
      FlowFrom(datagram.source, wire::kRoceUdpPort, datagram);
  for (const uint16_t id : {datagram.segment_index, uint16_t{0}}) {
    const wire::IpAddress source = wire::SolveSourceV4(
        ReceivedIcrc(datagram), flow.Compute(datagram.bytes.first(covered), id),
        datagram.source, covered);
    if (IsPrivateV4(source)) {
      return TrueSource{.address = source,
                        .port = wire::kRoceUdpPort,
                        .ip_id = id,
                        .flow = FlowFrom(source, wire::kRoceUdpPort, datagram)};
    }
  }
  return std::nullopt;
}

bool IsPrivateV4(const wire::IpAddress& address) {
  if (!address.is_v4()) return false;
  const uint8_t a = address.bytes[12];
  const uint8_t b = address.bytes[13];
  return a == 10 || (a == 172 && (b & 0xf0) == 16) || (a == 192 && b == 168) ||
         (a == 100 && (b & 0xc0) == 64) || (a == 169 && b == 254);
}

}  // namespace transport
