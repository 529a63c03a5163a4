#include "transport/xrc/xrc_target.h"

namespace transport {

XrcTarget::XrcTarget(Endpoint& endpoint, const QpConfig& config)
    : QueuePair(endpoint, config, wire::Transport::kXrc),
      responder_(core(), receiver(), endpoint.arena_pool()) {}

XrcTarget::~XrcTarget() { EnterReset(); }

// It sends no requests, so it is always drained.
void XrcTarget::Drain(Time /*now*/) { core().NoteDrained(); }

void XrcTarget::ReportService(QpReport* report) const {
  report->expected_psn = responder_.expected_psn();
}

bool XrcTarget::OnRequest(const Received& received, Time now) {
  return responder_.OnRequest(*received.packet, now);
}

bool XrcTarget::IsExpected(const wire::PacketView& packet) const {
  return packet.info().is_request && responder_.IsExpected(packet);
}

bool XrcTarget::IsWithinWindow(const wire::PacketView& packet) const {
  return packet.info().is_request && responder_.IsWithinWindow(packet);
}

Interests XrcTarget::TakeServiceInterests(Time now) {
  return responder_.GetInterests(now);
}

Interests XrcTarget::TransmitService(Time now, const TransmitTurn& turn,
                                     Burst* burst) {
  if (turn.acks_only) TransmitAnswers(now, burst);
  responder_.Transmit(now, burst, turn.acks_only);
  return responder_.GetInterests(now);
}

}  // namespace transport
