// Requests in PSN order: validation and execution (IBA vol. 1, 9.7.4.1).
#include "transport/rc/responder.h"

namespace transport {

Responder::Outcome Responder::Execute(const wire::PacketView& packet,
                                      Time now) {
  if (gap_.reported != GapNak::kNone) OnAwaited(packet, now);
  if (core_.config.may_refuse) [[unlikely]] {
    if (const auto syndrome = RefusalOnCommand()) return Refuse(*syndrome, now);
  }
  const wire::OpcodeInfo& info = packet.info();
  if (info.Has(wire::kXrcEth) && !IsForItsSrq(packet, now)) {
    return Invalid(Reason::kRequestSrq);
  }
  const RequestKind kind = KindOf(packet.operation());
  if (kind == RequestKind::kSend || kind == RequestKind::kWrite) {
    return ExecuteMessagePacket(packet, kind, now);
  }
  if (!receiver_.idle() || kind == RequestKind::kReserved) {
    return Invalid(Reason::kRequestOutOfSequence);
  }
  if (!LengthIsValid(packet, kind, mtu())) {
    return Invalid(Reason::kRequestLength);
  }
  if (!IsPermitted(kind, attributes().access_flags)) {
    return Invalid(Reason::kRequestNotPermitted);
  }
  Outcome outcome = Outcome::kFailed;
  uint64_t psns = 1;
  switch (kind) {
    case RequestKind::kRead:
      psns = ReadPackets(packet.reth().length);
      outcome = ExecuteRead(packet);
      break;
    case RequestKind::kAtomic:
      outcome = ExecuteAtomic(packet);
      break;
    case RequestKind::kAtomicWrite:
      if (!core_.config.memory_placement) {
        return Invalid(Reason::kRequestNotOffered);
      }
      outcome = ExecuteAtomicWrite(packet);
      break;
    case RequestKind::kFlush:
      if (!core_.config.memory_placement) {
        return Invalid(Reason::kRequestNotOffered);
      }
      outcome = ExecuteFlush(packet);
      break;
    case RequestKind::kSend:
    case RequestKind::kWrite:
    case RequestKind::kReserved:
      return Invalid(Reason::kRequestOutOfSequence);  // not reached
  }
  // These requests are acknowledged by their responses.
  if (outcome == Outcome::kExecuted) expected_ += psns;
  return outcome;
}

std::optional<uint8_t> Responder::RefusalOnCommand() const {
  return core_.config.events->Refuse(
      {.psn = expected_psn(),
       .requester = attributes().av.destination,
       .requester_qpn = attributes().dest_qpn,
       .min_rnr_timer = attributes().min_rnr_timer});
}

void Responder::OnAwaited(const wire::PacketView& packet, Time now) {
  if (gap_.reported == GapNak::kSequence && gap_wait_.IsReported(expected_)) {
    gap_wait_.OnFilled(packet, now);
  }
  // A NAK that is still due is void.
  gap_.reported = GapNak::kNone;
  if (owed_.nak.psn != 0) {
    owed_.nak = {};
    owed_.due = true;
  }
}

// Annex A14: each packet names its SRQ, not only the first of a message.
bool Responder::IsForItsSrq(const wire::PacketView& packet, Time now) {
  const uint32_t srqn = packet.xrc_srqn();
  if (!receiver_.idle()) return receiver_.UsesSrq(srqn);
  return !packet.info().starts_message || receiver_.UseSrq(srqn, now);
}

Responder::Outcome Responder::ExecuteMessagePacket(
    const wire::PacketView& packet, RequestKind kind, Time now) {
  switch (receiver_.Receive(packet, kind, now)) {
    case ReceiveOutcome::kCompleted:
      ++msn_;
      owed_.unacknowledged = true;
      break;
    case ReceiveOutcome::kPlaced:
      break;
    case ReceiveOutcome::kNoReceive:
      return NotReady();
    case ReceiveOutcome::kInvalidRequest:
      return Invalid(core_.refusal);
    case ReceiveOutcome::kAccessDenied:
      return AccessDenied(core_.refusal);
    case ReceiveOutcome::kReceiveTooShort:
      return FailReceive(wire::NakCode::kInvalidRequest,
                         WcStatus::kLocalLengthError, now);
    case ReceiveOutcome::kReceiveNotWritable:
      return FailReceive(wire::NakCode::kRemoteOperational,
                         WcStatus::kLocalProtectionError, now);
    case ReceiveOutcome::kAccessFailed:
      return FailReceive(kAccessNak, WcStatus::kLocalAccessError, now);
    case ReceiveOutcome::kNotInvalidated:
      return FailSilently(WcStatus::kMwBindError, now);
    case ReceiveOutcome::kCqLost:
      return Outcome::kFailed;
  }
  ++expected_;
  if (packet.ack_req()) owed_.due = true;
  return Outcome::kExecuted;
}

Responder::Outcome Responder::NotReady() {
  owed_.nak = {.psn = expected_,
               .syndrome = wire::MakeRnrSyndrome(attributes().min_rnr_timer)};
  gap_.reported = GapNak::kRnr;
  return Outcome::kNotReady;
}

Responder::Outcome Responder::Refuse(uint8_t syndrome, Time now) {
  if (wire::AethKindOf(syndrome) == wire::AethKind::kRnrNak) {
    owed_.nak = {.psn = expected_, .syndrome = syndrome};
    gap_.reported = GapNak::kRnr;
    return Outcome::kNotReady;
  }
  const wire::NakCode code = wire::NakCodeOf(syndrome);
  if (code == wire::NakCode::kPsnSequence) {
    ReportGap(now);
    return Outcome::kNotReady;
  }
  owed_.nak = {.psn = expected_, .syndrome = syndrome, .fatal = true};
  core_.Fail(Reason::kFaultOnCommand,
             code == wire::NakCode::kInvalidRequest ? QpEvent::kRequestError
             : code == wire::NakCode::kRemoteAccess ? QpEvent::kAccessError
                                                    : QpEvent::kFatal);
  return Outcome::kFailed;
}

Responder::Outcome Responder::Fail(wire::NakCode code, Reason reason,
                                   QpEvent event) {
  if (executing_buffered_) return Outcome::kRefused;
  owed_.nak = {
      .psn = expected_, .syndrome = wire::MakeNakSyndrome(code), .fatal = true};
  core_.Fail(reason, event);
  return Outcome::kFailed;
}

Responder::Outcome Responder::FailReceive(wire::NakCode code, WcStatus status,
                                          Time now) {
  if (executing_buffered_) return Outcome::kRefused;
  owed_.nak = {
      .psn = expected_, .syndrome = wire::MakeNakSyndrome(code), .fatal = true};
  return FailSilently(status, now);
}

Responder::Outcome Responder::FailSilently(WcStatus status, Time now) {
  if (executing_buffered_) return Outcome::kRefused;
  core_.NoteFirstError(core_.refusal);
  receiver_.FailReceive(status, now);
  core_.Fail(core_.refusal);
  return Outcome::kFailed;
}

Responder::Outcome Responder::Invalid(Reason reason) {
  return Fail(wire::NakCode::kInvalidRequest, reason, QpEvent::kRequestError);
}

Responder::Outcome Responder::AccessDenied(Reason reason) {
  return Fail(kAccessNak, reason, QpEvent::kAccessError);
}

}  // namespace transport
