// Responses on their way out (IBA vol. 1, 9.7.5.1): in PSN order, so that no
// ACK or NAK overtakes a READ response or an atomic acknowledge.
#include <algorithm>
#include <cassert>
#include <cstring>
#include <optional>

#include "transport/base/burst.h"
#include "transport/rc/responder.h"

namespace transport {

namespace {

// The syndrome of an ACK.
constexpr uint8_t kAck = wire::MakeAckSyndrome(wire::kCreditNone);

// An ACK of what comes before a READ need not wait for the READ's response.
bool OwesAckNow(const Resource& read) {
  return read.owes_ack && !read.answered && read.next_psn == read.first_psn;
}

}  // namespace

void Responder::AddPending(Time now, Interests* want) const {
  for (size_t i = resources_.first_pending(); i < resources_.size(); ++i) {
    const Resource& resource = resources_.at(i);
    if (!resource.pending) continue;
    if (resource.operation == wire::Operation::kReadRequest) {
      ResponsePace& pace = core_.path->responses();
      if (!pace.on() || pace.MayBegin(now)) {
        want->wants |= Interests::kUnwindowed;
      } else {
        if (OwesAckNow(resource)) want->wants |= Interests::kAcks;
        want->deadline =
            std::min(want->deadline, pace.TurnOf(core_.config.qpn));
        pace.OnHeld();
      }
      return;
    }
    want->wants |= Interests::kAcks;
  }
  if (owed_.any()) want->wants |= Interests::kAcks;
}

bool Responder::TransmitPending(Time now, Burst* burst, bool acks_only) {
  bool begun = false;
  while (Resource* resource = resources_.NextPending()) {
    if (resource->operation == wire::Operation::kReadRequest) {
      if (core_.path->responses().on()) [[unlikely]] {
        const Paced paced =
            TransmitPaced(now, resource, acks_only, &begun, burst);
        if (paced != Paced::kDone) return paced == Paced::kFull;
        continue;
      }
      if (acks_only) return false;
    }
    if (!TransmitResource(resource, burst)) return true;
  }
  if (const OwedAcks::Nak nak = owed_.nak; nak.psn != 0) {
    if (!TransmitAcknowledge(nak.psn, nak.syndrome, msn_, burst)) return true;
    const bool rnr = wire::AethKindOf(nak.syndrome) == wire::AethKind::kRnrNak;
    core_.Note(rnr         ? RareEventKind::kRnrNakSent
               : nak.fatal ? RareEventKind::kFatalNakSent
                           : RareEventKind::kSequenceNakSent,
               now, nak.psn, wire::AethValueOf(nak.syndrome));
    owed_.nak = {};
    owed_.OnSent();  // it acknowledges all that precedes it
  }
  if (owed_.due) {
    if (!TransmitAcknowledge(expected_ - 1, kAck, msn_, burst)) return true;
    owed_.OnSent();
  }
  if (owed_.repeated_psn != 0) {
    if (!TransmitAcknowledge(owed_.repeated_psn, kAck, owed_.repeated_msn,
                             burst)) {
      return true;
    }
    owed_.repeated_psn = 0;
  }
  return false;
}

Responder::Paced Responder::TransmitPaced(Time now, Resource* resource,
                                          bool acks_only, bool* begun,
                                          Burst* burst) {
  ResponsePace& pace = core_.path->responses();
  if (!*begun && !pace.MayBegin(now)) {
    if (!OwesAckNow(*resource)) return Paced::kHeld;
    if (!TransmitAcknowledge(resource->first_psn - 1, kAck, resource->msn - 1,
                             burst)) {
      return Paced::kFull;
    }
    resource->owes_ack = false;
    return Paced::kHeld;
  }
  if (acks_only) return Paced::kHeld;
  responded_ = true;
  while (resource->pending) {
    if (*begun && !pace.MayContinue(now)) return Paced::kHeld;
    const size_t before = burst->bytes().size();
    if (!TransmitReadPacket(resource, burst)) return Paced::kFull;
    const size_t bytes = burst->bytes().size() - before;
    if (bytes == 0) break;
    *begun = true;
    pace.OnSent(bytes + Path::kPacketOverhead, now);
  }
  return Paced::kDone;
}

// False when `burst` has no room for the next packet.
bool Responder::TransmitResource(Resource* resource, Burst* burst) {
  if (resource->operation == wire::Operation::kReadRequest) {
    responded_ = true;
    while (resource->pending) {
      if (!TransmitReadPacket(resource, burst)) return false;
    }
  } else if (!TransmitAtomicAck(resource, burst)) {
    return false;
  }
  return true;
}

uint8_t* Responder::BeginResponse(uint8_t opcode, uint64_t psn,
                                  uint8_t syndrome, uint32_t msn,
                                  size_t payload, Burst* burst) const {
  const wire::OpcodeInfo& info = wire::GetOpcodeInfo(opcode);
  const uint8_t pad = wire::PadCount(payload);
  uint8_t* const out =
      burst->Reserve(info.header_length + payload + pad + wire::kIcrcSize);
  if (out == nullptr) return nullptr;
  wire::EmitBth({.opcode = opcode,
                 .pad_count = pad,
                 .dest_qpn = attributes().dest_qpn,
                 .psn = static_cast<uint32_t>(psn)},
                out);
  if (info.Has(wire::kAeth)) {
    wire::EmitAeth({.syndrome = syndrome, .msn = msn}, out + info.aeth_offset);
  }
  core_.EmitFront(opcode, out);
  return out;
}

bool Responder::TransmitReadPacket(Resource* resource, Burst* burst) {
  using enum wire::Operation;
  const uint64_t psn = resource->next_psn;
  const uint64_t offset = (psn - resource->first_psn) * mtu();
  assert(offset <= resource->stop);
  const size_t bytes = std::min<uint64_t>(mtu(), resource->stop - offset);
  const bool first = psn == resource->start_psn;
  const bool last = offset + bytes == resource->stop;
  const uint8_t opcode = wire::MakeOpcode(
      core_.transport, first
                           ? (last ? kReadResponseOnly : kReadResponseFirst)
                           : (last ? kReadResponseLast : kReadResponseMiddle));
  uint8_t* const out =
      BeginResponse(opcode, psn, kAck, resource->msn, bytes, burst);
  if (out == nullptr) return false;
  const size_t header_bytes = wire::GetOpcodeInfo(opcode).header_length;
  std::optional<uint32_t> icrc;
  if (burst->CarriesIcrc(bytes)) icrc = burst->BeginIcrc(header_bytes);
  uint8_t* const payload = out + header_bytes;
  if (!ReadMemory(*resource, offset, bytes, payload, icrc ? &*icrc : nullptr,
                  !burst->has_icrc())) {
    // The application may withdraw its memory once it knows that the peer has
    // what it asked for; a copy of the request may arrive later.
    if (resource->answered) {
      resource->pending = false;
      resource->rest = 0;
      ++core_.counters.dropped_window;
    } else {
      FailResponse(*resource, psn);
    }
    return true;
  }
  uint8_t* const pad = payload + bytes;
  const size_t pad_bytes = wire::PadCount(bytes);
  std::memset(pad, 0, pad_bytes);
  if (icrc) icrc = wire::IcrcFlow::Extend(*icrc, {pad, pad_bytes});
  burst->Commit(icrc);
  ++resource->next_psn;
  if (last && resource->rest != 0) {
    resource->start_psn = resource->first_psn;
    resource->next_psn = resource->first_psn + resource->rest;
    resource->stop = resource->rest_stop;
    resource->rest = 0;
  } else if (last) {
    if (!resource->answered) {
      core_.Count(CountedCompletion::kRemoteRead, true, resource->length);
    }
    resource->pending = false;
    resource->answered = true;
    if (resource->last_psn + 1 == expected_) owed_.OnAcknowledgedByResponse();
  }
  return true;
}

bool Responder::ReadMemory(const Resource& resource, uint64_t offset,
                           size_t bytes, uint8_t* out, uint32_t* icrc,
                           bool streams) {
  if (bytes == 0) return true;
  MemoryAccess access = {.key = resource.rkey,
                         .remote = true,
                         .pd = resource.pd,
                         .qpn = core_.config.qpn,
                         .access = kAccessRemoteRead,
                         .va = resource.va + offset,
                         .length = bytes};
  const bool ends = offset + bytes == resource.stop;
  Memory& memory = *core_.config.memory;
  for (;;) {
    SpanList spans;
    const MemoryStatus status = memory.Translate(access, &spans);
    if (status != MemoryStatus::kOk) {
      core_.refusal = RemoteReason(status);
      return false;
    }
    for (const Span& span : spans) {
      const size_t part = std::min(bytes, span.length);
      const bool more = span.cold && !ends;
      const bool copied =
          streams ? memory.StreamFrom(out, span.data, part, more)
          : icrc == nullptr
              ? memory.CopyFrom(out, span.data, part, more)
              : memory.CopyFromWithIcrc(out, span.data, part, more, icrc);
      if (!copied) {
        core_.refusal = Reason::kRemoteFault;
        return false;
      }
      out += part;
      bytes -= part;
    }
    if (bytes == 0) return true;
    // A memory key with many pieces.
    access.va += access.length - bytes;
    access.length = bytes;
  }
}

// The memory was withdrawn after the request had been accepted: the NAK takes
// the response's place. Requests executed behind it are no longer answered, so
// they do not count as completed.
void Responder::FailResponse(const Resource& failed, uint64_t psn) {
  msn_ = failed.msn - 1;
  for (size_t i = 0; i < resources_.size(); ++i) {
    resources_.at(i).pending = false;
  }
  owed_.due = false;
  owed_.repeated_psn = 0;
  owed_.nak = {
      .psn = psn, .syndrome = wire::MakeNakSyndrome(kAccessNak), .fatal = true};
  core_.Fail(core_.refusal, QpEvent::kAccessError);
}

bool Responder::TransmitAtomicAck(Resource* resource, Burst* burst) {
  // ATOMIC WRITE and FLUSH are answered by a READ response without payload.
  const bool empty = resource->operation == wire::Operation::kAtomicWrite ||
                     resource->operation == wire::Operation::kFlush;
  const uint8_t opcode = wire::MakeOpcode(
      core_.transport, empty ? wire::Operation::kReadResponseOnly
                             : wire::Operation::kAtomicAcknowledge);
  uint8_t* const out =
      BeginResponse(opcode, resource->first_psn, kAck, resource->msn, 0, burst);
  if (out == nullptr) return false;
  if (!empty) {
    wire::EmitAtomicAckEth(
        {.original = resource->original},
        out + wire::GetOpcodeInfo(opcode).atomicacketh_offset);
  }
  burst->Commit();
  resource->pending = false;
  resource->answered = true;
  if (resource->last_psn + 1 == expected_) owed_.OnAcknowledgedByResponse();
  return true;
}

bool Responder::TransmitAcknowledge(uint64_t psn, uint8_t syndrome,
                                    uint32_t ack_msn, Burst* burst) {
  const uint8_t opcode =
      wire::MakeOpcode(core_.transport, wire::Operation::kAcknowledge);
  if (BeginResponse(opcode, psn, syndrome, ack_msn, 0, burst) == nullptr) {
    return false;
  }
  burst->Commit();
  return true;
}

}  // namespace transport
