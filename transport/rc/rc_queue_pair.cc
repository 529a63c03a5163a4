#include "transport/rc/rc_queue_pair.h"

#include <algorithm>

#include "wire/opcode.h"

namespace transport {

// An idle queue pair takes at most 2 KiB besides its queues
// (docs/performance.md). The objects around this one take the rest.
static_assert(sizeof(RcQueuePair) <= 1320);

RcQueuePair::RcQueuePair(Endpoint& endpoint, const QpConfig& config)
    : QueuePair(endpoint, config, wire::Transport::kRc),
      requester_(core()),
      responder_(core(), receiver(), endpoint.arena_pool()) {}

RcQueuePair::~RcQueuePair() { EnterReset(); }

void RcQueuePair::OnError() {
  requester_.Stop();
  responder_.OnError();
}

void RcQueuePair::OnReset() {
  requester_.Stop();
  responder_.Reset();
  responder_first_ = false;
}

void RcQueuePair::ReportService(QpReport* report) const {
  report->send_psn = requester_.send_psn();
  report->unacked_psn = requester_.unacked_psn();
  report->expected_psn = responder_.expected_psn();
  requester_.Report(report);
}

bool RcQueuePair::OnRequest(const Received& received, Time now) {
  return responder_.OnRequest(*received.packet, now);
}

bool RcQueuePair::OnResponse(const Received& received, Time now) {
  return requester_.OnResponse(*received.packet, now);
}

bool RcQueuePair::IsExpected(const wire::PacketView& packet) const {
  return packet.info().is_request ? responder_.IsExpected(packet)
                                  : requester_.Answers(packet);
}

bool RcQueuePair::IsWithinWindow(const wire::PacketView& packet) const {
  return packet.info().is_request ? responder_.IsWithinWindow(packet)
                                  : requester_.Answers(packet);
}

void RcQueuePair::OnServiceTimer(Time now) {
  requester_.OnTimer(now);
  responder_.OnTimer(now);
}

Interests RcQueuePair::TakeServiceInterests(Time now) {
  Interests want = requester_.TakeInterests(now);
  want.Add(responder_.GetInterests(now));
  return want;
}

// Requests go first, and an ACK, the shortest of packets, ends their burst;
// space is reserved for it. The peer processes the trailing ACK before the
// requests: a program that answers a message expects its peer to see first that
// the message has arrived, as with hardware, which sends ACKs at once. For the
// same reason new requests also acknowledge messages without AckReq. Responses
// that did not fit go first in the next burst, so neither half starves the
// other.
Interests RcQueuePair::TransmitService(Time now, const TransmitTurn& turn,
                                       Burst* burst) {
  if (turn.acks_only) {
    responder_.Transmit(now, burst, true);
    return TakeServiceInterests(now);
  }
  if (requester_.NewIsQueued()) responder_.OnAnswer();
  Interests want;
  if (responder_first_) {
    responder_first_ = false;
    responder_.Transmit(now, burst, false);
    if (core().failed) return want;
    want = requester_.Transmit(now, turn, burst);
  } else {
    if (responder_.OwesAck()) burst->KeepRoom(wire::kAcknowledgeSize);
    want = requester_.Transmit(now, turn, burst);
    burst->FreeRoom();
    if (core().failed) return want;
    responder_first_ = responder_.Transmit(now, burst, false);
  }
  want.Add(responder_.GetInterests(now));
  return want;
}

}  // namespace transport
