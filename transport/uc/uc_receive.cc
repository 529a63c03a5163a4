// The UC responder (IBA vol. 1, 9.8.2, 9.8.3). It silently drops packets that
// it cannot execute.
#include "transport/uc/uc_queue_pair.h"
#include "wire/psn.h"

namespace transport {

void UcQueuePair::Drop() {
  receiver().Abandon();
  dropping_ = true;
}

bool UcQueuePair::IsAhead(uint32_t psn, uint32_t expected) {
  const int32_t distance = wire::PsnDiff(psn, expected);
  return distance >= 0 && distance < kAheadPsns;
}

bool UcQueuePair::IsExpected(const wire::PacketView& packet) const {
  const uint32_t psn = packet.psn();
  if (packet.info().is_response) return flight_.Expects(psn);
  return IsAhead(psn, expected_psn_) || IsBeginning(packet);
}

bool UcQueuePair::IsBeginning(const wire::PacketView& packet) const {
  return unheard_ && packet.info().is_request &&
         IsAhead(packet.psn(), core().attributes.rq_psn);
}

// Reports of our UC extension: see UcFlight.
bool UcQueuePair::OnResponse(const Received& received, Time now) {
  const wire::PacketView& packet = *received.packet;
  if (flight_.OnReport(core().path, packet.psn(), packet.aeth(),
                       core().attributes.path_mtu + Path::kPacketOverhead,
                       now)) {
    return true;
  }
  ++core().counters.dropped_response;
  return false;
}

bool UcQueuePair::TransmitReport(Burst* burst) {
  uint8_t* const out = burst->Reserve(wire::kAcknowledgeSize);
  if (out == nullptr) return false;
  wire::Headers headers;
  headers.bth.opcode =
      wire::MakeOpcode(core().transport, wire::Operation::kAcknowledge);
  headers.bth.dest_qpn = core().attributes.dest_qpn;
  headers.bth.psn = asked_psn_;
  headers.aeth = UcFlight::Report(endpoint().receive_buffer(), missed_);
  wire::EmitHeaders(headers, out);
  burst->Commit();
  report_due_ = report_first_ = false;
  return true;
}

bool UcQueuePair::OnRequest(const Received& received, Time now) {
  const wire::PacketView& packet = *received.packet;
  const uint32_t psn = packet.psn();
  if (IsBeginning(packet)) {
    unheard_ = false;
    // A peer whose first packets were lost may reach its first PSNs when they
    // wrap.
    if (!IsAhead(psn, expected_psn_)) {
      expected_psn_ = core().attributes.rq_psn;
    }
  }
  const int32_t distance = wire::PsnDiff(psn, expected_psn_);
  if (distance < 0 && distance >= -kLatePsns) {
    ++core().counters.duplicates;
    return false;
  }
  // Until the port is known, an unexpected packet may come from anyone.
  if (packet.requests_uc_report() &&
      (received.origin == Origin::kPeerPort || IsExpected(packet))) {
    report_due_ = true;
    asked_psn_ = psn;
  }
  expected_psn_ = wire::PsnAdd(psn, 1);
  if (distance != 0) {
    ++core().counters.out_of_order;
    missed_ += static_cast<uint32_t>(distance) & wire::kPsnMask;
    Drop();
  }
  const bool starts = packet.info().starts_message;
  // A packet that begins a message ends the previous one, which is incomplete.
  if (starts) {
    receiver().Abandon();
    dropping_ = false;
  }
  if (dropping_) {
    ++core().counters.dropped_message;
    return true;
  }
  switch (receiver().Receive(packet, KindOf(packet.operation()), now)) {
    case ReceiveOutcome::kPlaced:
    case ReceiveOutcome::kCompleted:
    case ReceiveOutcome::kCqLost:  // the queue pair has failed
      break;
    case ReceiveOutcome::kNoReceive:
    case ReceiveOutcome::kInvalidRequest:
    case ReceiveOutcome::kAccessDenied:
    case ReceiveOutcome::kReceiveTooShort:
    case ReceiveOutcome::kAccessFailed:
    case ReceiveOutcome::kNotInvalidated:
      ++core().counters.dropped_message;
      Drop();
      break;
    case ReceiveOutcome::kReceiveNotWritable:
      receiver().FailReceive(WcStatus::kLocalProtectionError, now);
      core().Fail(core().refusal);
      break;
  }
  return true;
}

}  // namespace transport
