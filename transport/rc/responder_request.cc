// Requests in PSN order: validation and execution (IBA vol. 1, 9.7.4.1).
#include <algorithm>

#include "transport/qp/receive_queue.h"
#include "transport/rc/responder_impl.h"

namespace transport {
namespace {

constexpr uint64_t kMaxMessage = uint64_t{1} << 31;  // bytes
constexpr size_t kAtomicWriteBytes = 8;

}  // namespace

RequestKind KindOf(wire::Operation operation) {
  using enum wire::Operation;
  switch (operation) {
    case kWriteFirst:
    case kWriteMiddle:
    case kWriteLast:
    case kWriteLastImm:
    case kWriteOnly:
    case kWriteOnlyImm:
      return RequestKind::kWrite;
    case kReadRequest:
      return RequestKind::kRead;
    case kCompareSwap:
    case kFetchAdd:
      return RequestKind::kAtomic;
    case kAtomicWrite:
      return RequestKind::kAtomicWrite;
    case kFlush:
      return RequestKind::kFlush;
    default:
      return RequestKind::kSend;
  }
}

Responder::Impl::Outcome Responder::Impl::Execute(
    const wire::PacketView& packet, Time now) {
  // What was said of this PSN before is void: it has come.
  nak_made = false;
  if (nak) {
    nak.reset();
    ack_due = true;
  }
  const RequestKind kind = KindOf(packet.operation());
  if (!SequenceIsValid(packet, kind) || !LengthIsValid(packet, kind) ||
      !Permitted(kind)) {
    return Invalid(now);
  }
  Outcome outcome = Outcome::kFailed;
  uint64_t psns = 1;
  switch (kind) {
    case RequestKind::kSend:
      outcome = ExecuteSend(packet, now);
      break;
    case RequestKind::kWrite:
      outcome = ExecuteWrite(packet, now);
      break;
    case RequestKind::kRead:
      psns = ReadPackets(packet.reth().length);
      outcome = ExecuteRead(packet, now);
      break;
    case RequestKind::kAtomic:
      outcome = ExecuteAtomic(packet, now);
      break;
    case RequestKind::kAtomicWrite:
      outcome = ExecuteAtomicWrite(packet, now);
      break;
    case RequestKind::kFlush:
      return Invalid(now);  // not offered to peers yet
  }
  if (outcome != Outcome::kExecuted) return outcome;
  expected += psns;
  // READs and atomics are acknowledged by their responses.
  if (packet.bth().ack_req &&
      (kind == RequestKind::kSend || kind == RequestKind::kWrite)) {
    ack_due = true;
  }
  return outcome;
}

bool Responder::Impl::SequenceIsValid(const wire::PacketView& packet,
                                      RequestKind kind) const {
  switch (message.kind) {
    case Message::Kind::kNone:
      return packet.info().starts_message;
    case Message::Kind::kSend:
      return kind == RequestKind::kSend && !packet.info().starts_message;
    case Message::Kind::kWrite:
      return kind == RequestKind::kWrite && !packet.info().starts_message;
  }
  return false;
}

bool Responder::Impl::LengthIsValid(const wire::PacketView& packet,
                                    RequestKind kind) const {
  const size_t bytes = packet.payload().size();
  const wire::OpcodeInfo& info = packet.info();
  if (kind == RequestKind::kAtomicWrite) return bytes == kAtomicWriteBytes;
  if (!info.carries_payload) return bytes == 0;
  if (info.full_mtu_payload) return bytes == mtu();
  if (!info.starts_message && bytes == 0) return false;  // last
  return bytes <= mtu();
}

// What the queue pair does not offer is an invalid request, whatever the key
// (IBA vol. 1, 11.6.2, "operation is not supported by this receive queue").
bool Responder::Impl::Permitted(RequestKind kind) const {
  uint32_t needed = 0;
  switch (kind) {
    case RequestKind::kSend:
      return true;
    case RequestKind::kWrite:
    case RequestKind::kAtomicWrite:
      needed = kAccessRemoteWrite;
      break;
    case RequestKind::kRead:
      needed = kAccessRemoteRead;
      break;
    case RequestKind::kAtomic:
      needed = kAccessRemoteAtomic;
      break;
    case RequestKind::kFlush:
      needed = kAccessFlushGlobal | kAccessFlushPersistent;
      break;
  }
  return (attributes().access_flags & needed) != 0;
}

Responder::Impl::Outcome Responder::Impl::ExecuteSend(
    const wire::PacketView& packet, Time now) {
  if (packet.info().starts_message) {
    if (!TakeReceive()) return NotReady();
    message.kind = Message::Kind::kSend;
    message.received = 0;
  }
  const Outcome placed =
      PlaceInReceive(packet.payload(), packet.info().ends_message, now);
  if (placed != Outcome::kExecuted || !packet.info().ends_message) {
    return placed;
  }
  Completion completion;
  completion.opcode = WcOpcode::kReceive;
  if (packet.info().Has(wire::kImmDt)) {
    completion.flags = kWcWithImm;
    completion.imm_be_or_rkey = packet.imm_be();
  } else if (packet.info().Has(wire::kIeth)) {
    const uint32_t rkey = packet.invalidate_rkey();
    if (memory().Invalidate(rkey, qp.config_.pd, qp.qpn()) !=
        MemoryStatus::kOk) {
      return FailReceive(kAccessNak, WcStatus::kLocalAccessError, now);
    }
    completion.flags = kWcWithInvalidate;
    completion.imm_be_or_rkey = rkey;
  }
  completion.byte_len = static_cast<uint32_t>(message.received);
  completion.solicited = packet.bth().solicited;
  if (!CompleteReceive(completion, now)) return Outcome::kFailed;
  ++msn;
  return Outcome::kExecuted;
}

Responder::Impl::Outcome Responder::Impl::ExecuteWrite(
    const wire::PacketView& packet, Time now) {
  const wire::OpcodeInfo& info = packet.info();
  const std::span<const uint8_t> payload = packet.payload();
  const wire::Reth reth =
      info.starts_message ? packet.reth()
                          : wire::Reth{message.va, message.rkey,
                                       static_cast<uint32_t>(message.length)};
  const uint64_t before = info.starts_message ? 0 : message.received;
  const uint64_t after = before + payload.size();
  if (reth.length > kMaxMessage ||
      (info.ends_message ? after != reth.length : after >= reth.length)) {
    return Invalid(now);
  }
  // The whole range is checked when the message begins, and the part that is
  // written when it is written: the region may go in between.
  MemoryAccess access = {
      .key = reth.rkey,
      .remote = true,
      .pd = qp.config_.pd,
      .qpn = qp.qpn(),
      .access = kAccessRemoteWrite,
      .va = reth.va + before,
      .length = info.starts_message ? uint64_t{reth.length} : payload.size()};
  SpanList spans;
  if (access.length > 0 &&
      memory().Translate(access, &spans) != MemoryStatus::kOk) {
    return AccessDenied(now);
  }
  const bool immediate = info.Has(wire::kImmDt);
  if (immediate && !TakeReceive()) return NotReady();
  if (!CopyIn(spans, payload, !info.ends_message)) {
    return immediate ? FailReceive(kAccessNak, WcStatus::kLocalAccessError, now)
                     : AccessDenied(now);
  }
  message.kind = Message::Kind::kWrite;
  message.va = reth.va;
  message.rkey = reth.rkey;
  message.length = reth.length;
  message.received = after;
  if (!info.ends_message) return Outcome::kExecuted;
  message.kind = Message::Kind::kNone;
  if (immediate) {
    Completion completion;
    completion.opcode = WcOpcode::kReceiveRdmaWithImm;
    completion.flags = kWcWithImm;
    completion.imm_be_or_rkey = packet.imm_be();
    completion.byte_len = reth.length;
    completion.solicited = packet.bth().solicited;
    if (!CompleteReceive(completion, now)) return Outcome::kFailed;
  }
  ++msn;
  return Outcome::kExecuted;
}

bool Responder::Impl::TakeReceive() {
  ReceiveSource* source =
      qp.config_.srq != nullptr
          ? qp.config_.srq
          : static_cast<ReceiveSource*>(qp.receive_queue_.get());
  // There is one already if a held packet took it and was refused.
  if (!message.has_receive && !source->Pop(&message.receive)) return false;
  message.has_receive = true;
  message.sge = 0;
  message.sge_offset = 0;
  message.capacity = 0;
  for (const Sge& sge : message.receive.sges) message.capacity += sge.length;
  return true;
}

Responder::Impl::Outcome Responder::Impl::NotReady() {
  nak = Nak{wire::MakeRnrSyndrome(attributes().min_rnr_timer), expected, false};
  nak_made = true;
  return Outcome::kNotReady;
}

Responder::Impl::Outcome Responder::Impl::PlaceInReceive(
    std::span<const uint8_t> payload, bool ends, Time now) {
  const uint64_t after = message.received + payload.size();
  if (after > message.capacity || after > kMaxMessage) {
    return FailReceive(wire::NakCode::kInvalidRequest,
                       WcStatus::kLocalLengthError, now);
  }
  message.received = after;
  while (!payload.empty()) {
    const Sge& sge = message.receive.sges[message.sge];
    const size_t bytes =
        std::min<size_t>(payload.size(), sge.length - message.sge_offset);
    if (bytes > 0) {
      const MemoryAccess access = {.key = sge.lkey,
                                   .remote = false,
                                   .pd = message.receive.pd,
                                   .qpn = qp.qpn(),
                                   .access = kAccessLocalWrite,
                                   .va = sge.addr + message.sge_offset,
                                   .length = bytes};
      SpanList spans;
      if (memory().Translate(access, &spans) != MemoryStatus::kOk ||
          !CopyIn(spans, payload.first(bytes),
                  !ends && bytes < sge.length - message.sge_offset)) {
        return FailReceive(wire::NakCode::kRemoteOperational,
                           WcStatus::kLocalProtectionError, now);
      }
      payload = payload.subspan(bytes);
      message.sge_offset += static_cast<uint32_t>(bytes);
    }
    if (message.sge_offset == sge.length) {
      ++message.sge;
      message.sge_offset = 0;
    }
  }
  return Outcome::kExecuted;
}

// `spans` may name more than the payload fills.
bool Responder::Impl::CopyIn(const SpanList& spans,
                             std::span<const uint8_t> payload, bool more) {
  for (const Span& span : spans) {
    if (payload.empty()) break;
    const size_t bytes = std::min(span.length, payload.size());
    if (!memory().CopyTo(span.data, payload.data(), bytes, more && span.cold)) {
      return false;
    }
    payload = payload.subspan(bytes);
  }
  return payload.empty();
}

bool Responder::Impl::CompleteReceive(const Completion& completion, Time now) {
  Completion full = completion;
  full.wr_id = message.receive.wr_id;
  full.qpn = qp.qpn();
  full.time = now;
  message.has_receive = false;
  message.kind = Message::Kind::kNone;
  if (qp.config_.recv_cq->Push(full)) return true;
  qp.OnCqError(now);
  return false;
}

Responder::Impl::Outcome Responder::Impl::Fail(wire::NakCode code,
                                               QpEvent event, Time now) {
  if (executing_held) return Outcome::kRefused;
  nak = Nak{wire::MakeNakSyndrome(code), expected, true};
  qp.EnterError(now, event);
  return Outcome::kFailed;
}

Responder::Impl::Outcome Responder::Impl::FailReceive(wire::NakCode code,
                                                      WcStatus receive_status,
                                                      Time now) {
  if (executing_held) return Outcome::kRefused;
  nak = Nak{wire::MakeNakSyndrome(code), expected, true};
  Completion completion;
  completion.status = receive_status;
  completion.opcode = WcOpcode::kReceive;
  // On an overrun, CompleteReceive has entered the error state by itself.
  CompleteReceive(completion, now);
  qp.EnterError(now);
  return Outcome::kFailed;
}

Responder::Impl::Outcome Responder::Impl::Invalid(Time now) {
  return Fail(wire::NakCode::kInvalidRequest, QpEvent::kRequestError, now);
}

Responder::Impl::Outcome Responder::Impl::AccessDenied(Time now) {
  return Fail(kAccessNak, QpEvent::kAccessError, now);
}

}  // namespace transport
