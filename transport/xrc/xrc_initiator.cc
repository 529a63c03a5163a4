#include "transport/xrc/xrc_initiator.h"

namespace transport {

XrcInitiator::XrcInitiator(Endpoint& endpoint, const QpConfig& config)
    : QueuePair(endpoint, config, wire::Transport::kXrc), requester_(core()) {}

XrcInitiator::~XrcInitiator() { EnterReset(); }

void XrcInitiator::ReportService(QpReport* report) const {
  report->send_psn = requester_.send_psn();
  report->unacked_psn = requester_.unacked_psn();
}

bool XrcInitiator::OnResponse(const Received& received, Time now) {
  return requester_.OnResponse(*received.packet, now);
}

bool XrcInitiator::IsExpected(const wire::PacketView& packet) const {
  return packet.info().is_response && requester_.Answers(packet);
}

Interests XrcInitiator::TransmitService(Time now, const TransmitTurn& turn,
                                        Burst* burst) {
  if (turn.acks_only) return requester_.TakeInterests(now);
  return requester_.Transmit(now, turn, burst);
}

}  // namespace transport
