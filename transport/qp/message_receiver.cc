#include "transport/qp/message_receiver.h"

#include <algorithm>
#include <utility>

namespace transport {

using enum ReceiveOutcome;

bool MessageReceiver::IsNext(const wire::PacketView& packet,
                             RequestKind kind) const {
  const bool starts = packet.info().starts_message;
  switch (progress_.kind) {
    case Progress::Kind::kNone:
      return starts;
    case Progress::Kind::kSend:
      return kind == RequestKind::kSend && !starts;
    case Progress::Kind::kWrite:
      return kind == RequestKind::kWrite && !starts;
  }
  return false;
}

bool MessageReceiver::UseSrq(uint32_t srqn, Time now) {
  XrcSrq found;
  if (!core_.config.xrc->FindSrq(srqn, &found)) return false;
  // A refused packet had already taken a receive from another SRQ; the request
  // now in its place names a different SRQ.
  if (has_receive_ && core_.config.srq != found.receives) {
    has_receive_ = false;
    PushFlushed(now);
  }
  core_.config.pd = found.pd;
  core_.config.srq = found.receives;
  core_.config.recv_cq = found.cq;
  srqn_ = srqn & wire::kQpnMask;
  return true;
}

void MessageReceiver::ForgetSrq(const ReceiveSource* srq) {
  if (core_.config.srq != srq) return;
  core_.config.srq = nullptr;
  core_.config.recv_cq = nullptr;
  has_receive_ = false;
  progress_.kind = Progress::Kind::kNone;
}

inline bool MessageReceiver::TakeReceive() {
  ReceiveSource* const source =
      core_.config.srq != nullptr
          ? core_.config.srq
          : static_cast<ReceiveSource*>(core_.receive_queue.get());
  // An abandoned message has left its receive.
  if (!has_receive_ && !source->Pop(&receive_)) return false;
  has_receive_ = true;
  progress_.sge = 0;
  progress_.sge_offset = 0;
  uint64_t capacity = 0;
  for (const Sge& sge : receive_.sges) {
    capacity = std::min<uint64_t>(capacity + sge.length, wire::kMaxMessage);
  }
  capacity_ = static_cast<uint32_t>(capacity);
  return true;
}

inline size_t MessageReceiver::CopyIn(const SpanList& spans,
                                      std::span<const uint8_t> payload,
                                      bool more) {
  for (const Span& span : spans) {
    if (payload.empty()) break;
    const size_t bytes = std::min(span.length, payload.size());
    if (!core_.config.memory->CopyTo(span.data, payload.data(), bytes,
                                     more && span.cold)) {
      return kFault;
    }
    payload = payload.subspan(bytes);
  }
  return payload.size();
}

inline bool MessageReceiver::Push(Completion* completion) {
  CompletionSink& cq = *core_.config.recv_cq;
  ReceiveQueue* const queue = core_.receive_queue.get();
  if (queue == nullptr) {
    completion->slot = core_.config.srq->TakenSlot();
    if (cq.Push(*completion)) return true;
    completion->slot.Free();
    return false;
  }
  completion->slot = queue->TakenSlot();
  Outstanding& outstanding = queue->outstanding();
  const uint32_t earlier = outstanding.Report(completion->slot.end);
  if (cq.Push(*completion)) return true;
  outstanding.Lost(earlier);
  return false;
}

ReceiveOutcome MessageReceiver::Receive(const wire::PacketView& packet,
                                        RequestKind kind, Time now) {
  if (!IsNext(packet, kind)) {
    return Refuse(kInvalidRequest, Reason::kRequestOutOfSequence);
  }
  if (!LengthIsValid(packet, kind, core_.attributes.path_mtu)) {
    return Refuse(kInvalidRequest, Reason::kRequestLength);
  }
  if (!IsPermitted(kind, core_.attributes.access_flags)) {
    return Refuse(kInvalidRequest, Reason::kRequestNotPermitted);
  }
  return kind == RequestKind::kSend ? ReceiveSend(packet, now)
                                    : ReceiveWrite(packet, now);
}

ReceiveOutcome MessageReceiver::ReceiveSend(const wire::PacketView& packet,
                                            Time now) {
  const wire::OpcodeInfo& info = packet.info();
  if (info.starts_message) {
    if (!TakeReceive()) return kNoReceive;
    progress_.kind = Progress::Kind::kSend;
    progress_.received = 0;
  }
  const ReceiveOutcome placed =
      PlaceInReceive(packet.payload(), info.ends_message);
  if (placed != kPlaced || !info.ends_message) return placed;
  Completion completion;
  completion.opcode = WcOpcode::kReceive;
  if (info.Has(wire::kImmDt)) {
    completion.flags = kWcWithImm;
    completion.imm_be_or_rkey = packet.imm_be();
  } else if (info.Has(wire::kIeth)) {
    const uint32_t rkey = packet.invalidate_rkey();
    const MemoryStatus status =
        core_.config.memory->Invalidate({.rkey = rkey,
                                         .pd = core_.config.pd,
                                         .qpn = core_.config.qpn,
                                         .remote = true});
    if (status != MemoryStatus::kOk) {
      return Refuse(kNotInvalidated, BindReason(status));
    }
    completion.flags = kWcWithInvalidate;
    completion.imm_be_or_rkey = rkey;
  }
  completion.byte_len = static_cast<uint32_t>(progress_.received);
  completion.solicited = packet.solicited();
  return Complete(&completion, now);
}

ReceiveOutcome MessageReceiver::ReceiveDatagram(const wire::PacketView& packet,
                                                RoceHeader kind,
                                                std::span<const uint8_t> header,
                                                Time now) {
  Completion completion;
  completion.opcode = WcOpcode::kReceive;
  completion.flags = kWcGrh;
  if (packet.info().Has(wire::kImmDt)) {
    completion.flags |= kWcWithImm;
    completion.imm_be_or_rkey = packet.imm_be();
  }
  completion.src_qpn = packet.deth().src_qpn;
  completion.service_level = static_cast<uint8_t>(kind);
  completion.solicited = packet.solicited();
  return ReceiveWhole(header, packet.payload(), &completion, now);
}

ReceiveOutcome MessageReceiver::ReceiveWhole(std::span<const uint8_t> header,
                                             std::span<const uint8_t> payload,
                                             Completion* completion, Time now) {
  if (!TakeReceive()) return kNoReceive;
  progress_.received = 0;
  // A message that does not fit is not placed at all.
  if (header.size() + payload.size() > capacity_) {
    return Refuse(kReceiveTooShort, Reason::kReceiveTooShort);
  }
  ReceiveOutcome placed = PlaceInReceive(header, false);
  if (placed == kPlaced) placed = PlaceInReceive(payload, true);
  if (placed != kPlaced) return placed;
  completion->byte_len = static_cast<uint32_t>(progress_.received);
  return Complete(completion, now);
}

ReceiveOutcome MessageReceiver::ReceiveWrite(const wire::PacketView& packet,
                                             Time now) {
  const wire::OpcodeInfo& info = packet.info();
  const std::span<const uint8_t> payload = packet.payload();
  const wire::Reth reth = info.starts_message ? packet.reth() : target_;
  const uint64_t before = info.starts_message ? 0 : progress_.received;
  const uint64_t after = before + payload.size();
  if (reth.length > wire::kMaxMessage ||
      (info.ends_message ? after != reth.length : after >= reth.length)) {
    return Refuse(kInvalidRequest, Reason::kRequestLength);
  }
  // Checks the whole range at the first packet, and each packet's part when it
  // is written: the region may be deregistered in between.
  const MemoryAccess access = {
      .key = reth.rkey,
      .remote = true,
      .pd = core_.config.pd,
      .qpn = core_.config.qpn,
      .access = kAccessRemoteWrite,
      .va = reth.va + before,
      .length = info.starts_message ? uint64_t{reth.length} : payload.size()};
  const bool immediate = info.Has(wire::kImmDt);
  SpanList spans;
  const MemoryStatus status =
      access.length > 0 ? core_.config.memory->Translate(access, &spans)
                        : MemoryStatus::kOk;
  if (status != MemoryStatus::kOk) {
    // The immediate data's receive reports the error (11.6.2).
    return Refuse(immediate && TakeReceive() ? kAccessFailed : kAccessDenied,
                  RemoteReason(status));
  }
  if (immediate && !TakeReceive()) return kNoReceive;
  const bool more = !info.ends_message;
  const size_t left = CopyIn(spans, payload, more);
  if (left != 0) {
    const MemoryStatus rest = CopyRest(access, payload, left, more);
    if (rest != MemoryStatus::kOk) {
      return Refuse(immediate ? kAccessFailed : kAccessDenied,
                    RemoteReason(rest));
    }
  }
  target_ = reth;
  progress_.received = after;
  if (!info.ends_message) {
    progress_.kind = Progress::Kind::kWrite;
    return kPlaced;
  }
  progress_.kind = Progress::Kind::kNone;
  core_.Count(CountedCompletion::kRemoteWrite, true, reth.length);
  if (!immediate) return kCompleted;
  Completion completion;
  completion.opcode = WcOpcode::kReceiveRdmaWithImm;
  completion.flags = kWcWithImm;
  completion.imm_be_or_rkey = packet.imm_be();
  completion.byte_len = reth.length;
  completion.solicited = packet.solicited();
  return Complete(&completion, now);
}

ReceiveOutcome MessageReceiver::PlaceInReceive(std::span<const uint8_t> payload,
                                               bool ends) {
  const uint64_t after = progress_.received + payload.size();
  if (after > capacity_) {
    return Refuse(kReceiveTooShort, Reason::kReceiveTooShort);
  }
  progress_.received = after;
  while (!payload.empty()) {
    const Sge& sge = receive_.sges[progress_.sge];
    const size_t bytes =
        std::min<size_t>(payload.size(), sge.length - progress_.sge_offset);
    if (bytes > 0) {
      const MemoryAccess access = {.key = sge.lkey,
                                   .remote = false,
                                   .pd = receive_.pd,
                                   .qpn = core_.config.qpn,
                                   .access = kAccessLocalWrite,
                                   .va = sge.addr + progress_.sge_offset,
                                   .length = bytes};
      SpanList spans;
      MemoryStatus status = core_.config.memory->Translate(access, &spans);
      if (status == MemoryStatus::kOk) {
        const std::span<const uint8_t> part = payload.first(bytes);
        const bool more = !ends && bytes < sge.length - progress_.sge_offset;
        const size_t left = CopyIn(spans, part, more);
        if (left != 0) status = CopyRest(access, part, left, more);
      }
      if (status != MemoryStatus::kOk) {
        return Refuse(kReceiveNotWritable, LocalReason(status));
      }
      payload = payload.subspan(bytes);
      progress_.sge_offset += static_cast<uint32_t>(bytes);
    }
    if (progress_.sge_offset == sge.length) {
      ++progress_.sge;
      progress_.sge_offset = 0;
    }
  }
  return kPlaced;
}

MemoryStatus MessageReceiver::CopyRest(const MemoryAccess& access,
                                       std::span<const uint8_t> payload,
                                       size_t left, bool more) {
  MemoryAccess rest = access;
  while (left != 0 && left != kFault) {
    rest.va = access.va + (payload.size() - left);
    rest.length = left;
    SpanList spans;
    const MemoryStatus status = core_.config.memory->Translate(rest, &spans);
    if (status != MemoryStatus::kOk) return status;
    left = CopyIn(spans, payload.last(left), more);
  }
  return left == 0 ? MemoryStatus::kOk : MemoryStatus::kFault;
}

ReceiveOutcome MessageReceiver::Complete(Completion* completion, Time now) {
  completion->wr_id = receive_.wr_id;
  completion->qpn = core_.config.qpn;
  completion->time = now;
  has_receive_ = false;
  progress_.kind = Progress::Kind::kNone;
  ++core_.counters.receives;
  core_.Count(CountedCompletion::kReceive,
              completion->status == WcStatus::kSuccess, completion->byte_len);
  if (Push(completion)) return kCompleted;
  core_.Fail(Reason::kCqOverrun, QpEvent::kFatal);
  return kCqLost;
}

void MessageReceiver::FailReceive(WcStatus status, Time now) {
  Completion completion;
  completion.status = status;
  completion.reason = core_.refusal;
  completion.opcode = WcOpcode::kReceive;
  ++core_.counters.receive_errors;
  Complete(&completion, now);
}

void MessageReceiver::Flush(Time now) {
  progress_.kind = Progress::Kind::kNone;
  if (std::exchange(has_receive_, false)) PushFlushed(now);
  ReceiveQueue* const queue = core_.receive_queue.get();
  while (queue != nullptr && queue->Pop(&receive_)) PushFlushed(now);
}

void MessageReceiver::PushFlushed(Time now) {
  Completion flushed;
  flushed.wr_id = receive_.wr_id;
  flushed.status = WcStatus::kFlushed;
  flushed.reason = core_.first_error;
  flushed.opcode = WcOpcode::kReceive;
  flushed.qpn = core_.config.qpn;
  flushed.time = now;
  ++core_.counters.receive_flushes;
  core_.Count(CountedCompletion::kReceive, false, 0);
  Push(&flushed);
}

void MessageReceiver::Reset() {
  progress_ = {};
  // The caller has emptied the queue pair's own receive queue.
  if (has_receive_ && core_.receive_queue == nullptr) {
    core_.config.srq->TakenSlot().Free();
  }
  has_receive_ = false;
  receive_ = {};
}

}  // namespace transport
