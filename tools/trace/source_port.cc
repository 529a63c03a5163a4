#include "tools/trace/source_port.h"

#include <vector>

#include "wire/icrc.h"
#include "wire/packet.h"

namespace trace {
namespace {

constexpr size_t kMinPacket = wire::kBthSize + wire::kIcrcSize;

wire::IcrcFlow FlowFrom(uint16_t port, const wire::FrameHeaders& h) {
  return wire::IcrcFlow(h.src, h.dst, port, h.dst_port);
}

// The destination queue pair of a packet in a flow; absent for other packets.
std::optional<uint32_t> FlowQpn(std::span<const uint8_t> udp_payload) {
  if (udp_payload.empty()) return std::nullopt;
  switch (wire::TransportOf(udp_payload[0])) {
    case wire::Transport::kRc:
    case wire::Transport::kUc:
    case wire::Transport::kXrc:
      return wire::PeekDestQpn(udp_payload);
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<uint16_t> SolveSourcePort(const wire::FrameHeaders& h,
                                        std::span<const uint8_t> udp_payload) {
  if (udp_payload.size() < kMinPacket) return std::nullopt;
  const std::span<const uint8_t> covered =
      udp_payload.first(udp_payload.size() - wire::kIcrcSize);
  const auto icrc_from = [&](uint16_t port) {
    return FlowFrom(port, h).Compute(covered, h.ip_id, h.df);
  };
  const uint32_t now = icrc_from(h.src_port);
  // How each bit of the port changes the ICRC, in echelon form: no entry has
  // the highest bit of an earlier one.
  struct Change {
    uint32_t icrc;
    uint16_t port;
  };
  std::vector<Change> changes;
  const auto reduce = [&changes](Change change) {
    for (const Change& known : changes) {
      if ((change.icrc ^ known.icrc) < change.icrc) {
        change.icrc ^= known.icrc;
        change.port ^= known.port;
      }
    }
    return change;
  };
  for (int bit = 0; bit < 16; ++bit) {
    const auto flipped = static_cast<uint16_t>(1u << bit);
    const uint32_t changed =
        icrc_from(static_cast<uint16_t>(h.src_port ^ flipped)) ^ now;
    changes.push_back(reduce({changed, flipped}));
  }
  const uint32_t received = wire::LoadLe32(udp_payload.data() + covered.size());
  const Change rest = reduce({received ^ now, 0});
  if (rest.icrc != 0) return std::nullopt;
  return static_cast<uint16_t>(h.src_port ^ rest.port);
}

void SourcePorts::Note(const wire::FrameHeaders& h,
                       std::span<const uint8_t> udp_payload) {
  if (h.src_port != wire::kRoceUdpPort) return;
  if (const auto qpn = FlowQpn(udp_payload)) {
    ports_.emplace(Flow(h.src, h.dst, *qpn), h.src_port);
  }
}

std::optional<uint16_t> SourcePorts::Find(
    const wire::FrameHeaders& h, std::span<const uint8_t> udp_payload) {
  if (h.src_port != wire::kRoceUdpPort) return std::nullopt;
  const auto qpn = FlowQpn(udp_payload);
  if (!qpn) return SolveSourcePort(h, udp_payload);
  const Flow flow(h.src, h.dst, *qpn);
  if (const auto known = ports_.find(flow); known != ports_.end()) {
    if (!FlowFrom(known->second, h).Verify(udp_payload, h.ip_id, h.df)) {
      return std::nullopt;
    }
    return known->second;
  }
  const std::optional<uint16_t> port = SolveSourcePort(h, udp_payload);
  if (port) ports_.emplace(flow, *port);
  return port;
}

}  // namespace trace
