// Execution of READs, atomics and FLUSH, whose response is more than an ACK
// (IBA vol. 1, 9.7.4.1, 9.7.4.4; annex A19 for ATOMIC WRITE and FLUSH).
#include <algorithm>
#include <cstring>

#include "transport/rc/responder.h"

namespace transport {
namespace {

constexpr size_t kWord = 8;  // bytes of an atomic

}  // namespace

uint64_t Responder::ReadPackets(uint64_t length) const {
  return std::max<uint64_t>(1, (length + mtu() - 1) / mtu());
}

Resource* Responder::NewResource() {
  Resource* resource = resources_.New();
  if (resource == nullptr) return nullptr;
  resource->first_psn = resource->last_psn = expected_;
  resource->start_psn = resource->next_psn = expected_;
  resource->pd = core_.config.pd;
  return resource;
}

Responder::Outcome Responder::Executed(Resource* resource,
                                       const wire::PacketView& packet,
                                       uint32_t rkey, uint64_t va) {
  resources_.Add();
  resource->operation = packet.operation();
  resource->va = va;
  resource->rkey = rkey;
  resource->msn = ++msn_;
  resource->pending = true;
  return Outcome::kExecuted;
}

MemoryAccess Responder::RemoteAccess(uint32_t rkey, uint64_t va,
                                     uint64_t length, uint32_t access) const {
  return {.key = rkey,
          .remote = true,
          .pd = core_.config.pd,
          .qpn = core_.config.qpn,
          .access = access,
          .va = va,
          .length = length};
}

Responder::Outcome Responder::ExecuteRead(const wire::PacketView& packet) {
  const wire::Reth reth = packet.reth();
  if (reth.length > wire::kMaxMessage) return Invalid(Reason::kRequestLength);
  const MemoryAccess access =
      RemoteAccess(reth.rkey, reth.va, reth.length, kAccessRemoteRead);
  SpanList spans;
  const MemoryStatus status =
      reth.length > 0 ? core_.config.memory->Translate(access, &spans)
                      : MemoryStatus::kOk;
  if (status != MemoryStatus::kOk) return AccessDenied(RemoteReason(status));
  Resource* resource = NewResource();
  if (resource == nullptr) return Invalid(Reason::kRequestTooMany);
  resource->last_psn = expected_ + ReadPackets(reth.length) - 1;
  resource->length = reth.length;
  resource->stop = reth.length;
  resource->owes_ack = owed_.due;
  return Executed(resource, packet, reth.rkey, reth.va);
}

uint8_t* Responder::AtomicWord(uint32_t rkey, uint64_t va, uint32_t access,
                               Outcome* outcome) {
  if (va % kWord != 0) {
    *outcome = Invalid(Reason::kRequestMisaligned);
    return nullptr;
  }
  const MemoryAccess word = RemoteAccess(rkey, va, kWord, access);
  SpanList spans;
  // A region's virtual address need not be that of its memory, which must be
  // aligned as well, and in one piece.
  MemoryStatus status = core_.config.memory->Translate(word, &spans);
  if (status == MemoryStatus::kOk &&
      (spans.empty() || spans[0].length < kWord ||
       reinterpret_cast<uintptr_t>(spans[0].data) % kWord != 0)) {
    status = MemoryStatus::kFault;
  }
  if (status != MemoryStatus::kOk) {
    *outcome = AccessDenied(RemoteReason(status));
    return nullptr;
  }
  return spans[0].data;
}

Responder::Outcome Responder::ExecuteAtomic(const wire::PacketView& packet) {
  const wire::AtomicEth atomic = packet.atomic();
  Outcome outcome = Outcome::kExecuted;
  uint8_t* word =
      AtomicWord(atomic.rkey, atomic.va, kAccessRemoteAtomic, &outcome);
  if (word == nullptr) return outcome;
  Resource* resource = NewResource();
  if (resource == nullptr) return Invalid(Reason::kRequestTooMany);
  uint64_t original = 0;
  const bool done =
      packet.operation() == wire::Operation::kCompareSwap
          ? core_.config.memory->CompareSwap(word, atomic.compare,
                                             atomic.swap_or_add, &original)
          : core_.config.memory->FetchAdd(word, atomic.swap_or_add, &original);
  if (!done) return AccessDenied(Reason::kRemoteFault);
  resource->original = original;
  return Executed(resource, packet, atomic.rkey, atomic.va);
}

Responder::Outcome Responder::ExecuteAtomicWrite(
    const wire::PacketView& packet) {
  const wire::Reth reth = packet.reth();
  if (reth.length != kWord) return Invalid(Reason::kRequestLength);
  Outcome outcome = Outcome::kExecuted;
  uint8_t* word = AtomicWord(reth.rkey, reth.va, kAccessRemoteWrite, &outcome);
  if (word == nullptr) return outcome;
  Resource* resource = NewResource();
  if (resource == nullptr) return Invalid(Reason::kRequestTooMany);
  // One atomic store; the bytes stay in their order.
  uint64_t value;
  std::memcpy(&value, packet.payload().data(), kWord);
  uint64_t found = 0;
  uint64_t assumed = 0;
  do {
    assumed = found;
    if (!core_.config.memory->CompareSwap(word, assumed, value, &found)) {
      return AccessDenied(Reason::kRemoteFault);
    }
  } while (found != assumed);
  return Executed(resource, packet, reth.rkey, reth.va);
}

// It covers everything that was executed before: stores happen in order.
Responder::Outcome Responder::ExecuteFlush(const wire::PacketView& packet) {
  const wire::Feth feth = packet.feth();
  const wire::Reth reth = packet.reth();
  const uint32_t needed = AccessOf(feth);
  // If so, address and length of the request are ignored.
  const bool whole_region = feth.selectivity == wire::kSelectivityWholeMr;
  if (!IsValid(feth) || (!whole_region && reth.length > wire::kMaxMessage)) {
    return Invalid(Reason::kRequestNotOffered);
  }
  if ((attributes().access_flags & needed) != needed) {
    return Invalid(Reason::kRequestNotPermitted);
  }
  Resource* resource = NewResource();
  if (resource == nullptr) return Invalid(Reason::kRequestTooMany);
  const MemoryStatus status = core_.config.memory->Flush(
      RemoteAccess(reth.rkey, reth.va, reth.length, needed), whole_region);
  switch (status) {
    case MemoryStatus::kOk:
      break;
    case MemoryStatus::kFault:
      return Fail(wire::NakCode::kRemoteOperational, Reason::kRemoteFault,
                  QpEvent::kFatal);
    default:
      return AccessDenied(RemoteReason(status));
  }
  return Executed(resource, packet, reth.rkey, reth.va);
}

}  // namespace transport
