// Responses on their way out (IBA vol. 1, 9.7.5.1): in PSN order, so that no
// ACK or NAK overtakes a READ response or an atomic acknowledge.
#include <algorithm>
#include <cstring>
#include <optional>

#include "transport/base/burst.h"
#include "transport/rc/responder_impl.h"
#include "wire/psn.h"

namespace transport {

Resource* Responder::Impl::NextPending() {
  for (; first_pending < next_resource; ++first_pending) {
    Resource& resource = resources[first_pending % resources.size()];
    if (resource.pending) return &resource;
  }
  return nullptr;
}

Responder::Output Responder::Impl::output() const {
  Output output;
  for (uint64_t n = first_pending; n < next_resource; ++n) {
    const Resource& resource = resources[n % resources.size()];
    if (!resource.pending) continue;
    output.reads = resource.operation == wire::Operation::kReadRequest;
    if (output.reads) return output;
    output.answers = true;
  }
  output.answers = output.answers || nak || ack_due || repeated_ack;
  return output;
}

bool Responder::Impl::Transmit(Time now, Burst* burst, bool answers_only) {
  while (Resource* resource = NextPending()) {
    if (answers_only && resource->operation == wire::Operation::kReadRequest) {
      return false;
    }
    if (!TransmitResource(resource, now, burst)) return true;
  }
  if (nak) {
    if (!TransmitAcknowledge(nak->psn, nak->syndrome, msn, burst)) return true;
    const bool rnr = wire::AethKindOf(nak->syndrome) == wire::AethKind::kRnrNak;
    ++(rnr ? qp.counters_.rnr_naks_sent : qp.counters_.naks_sent);
    nak.reset();
    // It acknowledges all that precedes it.
    ack_due = false;
    repeated_ack.reset();
  }
  const uint8_t ack = wire::MakeAckSyndrome(wire::kCreditNone);
  if (ack_due) {
    if (!TransmitAcknowledge(expected - 1, ack, msn, burst)) return true;
    ack_due = false;
    repeated_ack.reset();
  }
  if (repeated_ack) {
    if (!TransmitAcknowledge(*repeated_ack, ack, repeated_ack_msn, burst)) {
      return true;
    }
    repeated_ack.reset();
  }
  return false;
}

// False when `burst` has no room for the next packet.
bool Responder::Impl::TransmitResource(Resource* resource, Time now,
                                       Burst* burst) {
  if (resource->operation == wire::Operation::kReadRequest) {
    while (resource->pending) {
      if (!TransmitReadPacket(resource, now, burst)) return false;
    }
  } else if (!TransmitAtomicAck(resource, burst)) {
    return false;
  }
  return true;
}

wire::Headers Responder::Impl::ResponseHeaders(wire::Operation operation,
                                               uint64_t psn) const {
  wire::Headers headers;
  headers.bth.opcode = wire::MakeOpcode(wire::Transport::kRc, operation);
  headers.bth.dest_qpn = attributes().dest_qpn;
  headers.bth.psn = static_cast<uint32_t>(psn) & wire::kPsnMask;
  headers.aeth.syndrome = wire::MakeAckSyndrome(wire::kCreditNone);
  return headers;
}

bool Responder::Impl::TransmitReadPacket(Resource* resource, Time now,
                                         Burst* burst) {
  using enum wire::Operation;
  const uint64_t psn = resource->next_psn;
  const uint64_t offset = (psn - resource->first_psn) * mtu();
  const size_t bytes = std::min<uint64_t>(mtu(), resource->stop - offset);
  const bool first = psn == resource->start_psn;
  const bool last = offset + bytes == resource->stop;
  wire::Headers headers =
      ResponseHeaders(first ? (last ? kReadResponseOnly : kReadResponseFirst)
                            : (last ? kReadResponseLast : kReadResponseMiddle),
                      psn);
  headers.bth.pad_count = wire::PadCount(bytes);
  headers.aeth.msn = resource->msn & wire::kPsnMask;
  const size_t header_bytes =
      wire::GetOpcodeInfo(headers.bth.opcode).header_length;
  uint8_t* out = burst->Reserve(header_bytes + bytes + headers.bth.pad_count +
                                wire::kIcrcSize);
  if (out == nullptr) return false;
  uint8_t header[wire::kMaxHeaderSize];
  wire::EmitHeaders(headers, header);
  std::memcpy(out, header, header_bytes);
  std::optional<uint32_t> icrc;
  if (bytes >= Burst::kMinCarriedIcrc) icrc = burst->BeginIcrc(header_bytes);
  uint8_t* const payload = out + header_bytes;
  if (!ReadMemory(*resource, offset, bytes, payload, icrc ? &*icrc : nullptr)) {
    FailResponse(psn, now);
    return true;
  }
  uint8_t* const pad = payload + bytes;
  std::memset(pad, 0, headers.bth.pad_count);
  if (icrc) icrc = wire::IcrcFlow::Extend(*icrc, {pad, headers.bth.pad_count});
  burst->Commit(icrc);
  ++resource->next_psn;
  if (last) {
    resource->pending = false;
    resource->answered = true;
    if (resource->last_psn + 1 == expected) ack_due = false;
  }
  return true;
}

bool Responder::Impl::ReadMemory(const Resource& resource, uint64_t offset,
                                 size_t bytes, uint8_t* out, uint32_t* icrc) {
  if (bytes == 0) return true;
  const MemoryAccess access = {.key = resource.rkey,
                               .remote = true,
                               .pd = qp.config_.pd,
                               .qpn = qp.qpn(),
                               .access = kAccessRemoteRead,
                               .va = resource.va + offset,
                               .length = bytes};
  SpanList spans;
  if (memory().Translate(access, &spans) != MemoryStatus::kOk) return false;
  const bool ends = offset + bytes == resource.stop;
  for (const Span& span : spans) {
    const size_t part = std::min(bytes, span.length);
    const bool more = span.cold && !ends;
    const bool copied =
        icrc == nullptr
            ? memory().CopyFrom(out, span.data, part, more)
            : memory().CopyFromWithIcrc(out, span.data, part, more, icrc);
    if (!copied) return false;
    out += part;
    bytes -= part;
  }
  return bytes == 0;
}

// The memory went away after the request had been accepted: the NAK takes the
// response's place.
void Responder::Impl::FailResponse(uint64_t psn, Time now) {
  for (Resource& resource : resources) resource.pending = false;
  ack_due = false;
  repeated_ack.reset();
  nak = Nak{wire::MakeNakSyndrome(kAccessNak), psn, true};
  qp.EnterError(now, QpEvent::kAccessError);
}

bool Responder::Impl::TransmitAtomicAck(Resource* resource, Burst* burst) {
  // ATOMIC WRITE is answered by a READ response without payload.
  const bool write = resource->operation == wire::Operation::kAtomicWrite;
  wire::Headers headers =
      ResponseHeaders(write ? wire::Operation::kReadResponseOnly
                            : wire::Operation::kAtomicAcknowledge,
                      resource->first_psn);
  headers.aeth.msn = resource->msn & wire::kPsnMask;
  headers.atomic_ack.original = resource->original;
  uint8_t header[wire::kMaxHeaderSize];
  const size_t size = wire::EmitHeaders(headers, header);
  uint8_t* out = burst->Reserve(size + wire::kIcrcSize);
  if (out == nullptr) return false;
  std::memcpy(out, header, size);
  burst->Commit();
  resource->pending = false;
  resource->answered = true;
  if (resource->last_psn + 1 == expected) ack_due = false;
  return true;
}

bool Responder::Impl::TransmitAcknowledge(uint64_t psn, uint8_t syndrome,
                                          uint32_t ack_msn, Burst* burst) {
  wire::Headers headers = ResponseHeaders(wire::Operation::kAcknowledge, psn);
  headers.aeth.syndrome = syndrome;
  headers.aeth.msn = ack_msn & wire::kPsnMask;
  uint8_t header[wire::kMaxHeaderSize];
  const size_t size = wire::EmitHeaders(headers, header);
  uint8_t* out = burst->Reserve(size + wire::kIcrcSize);
  if (out == nullptr) return false;
  std::memcpy(out, header, size);
  burst->Commit();
  return true;
}

}  // namespace transport
