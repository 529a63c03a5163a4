// Execution of READs and atomics: what is answered by more than an ACK (IBA
// vol. 1, 9.7.4.1, 9.7.4.4; annex A19 for ATOMIC WRITE).
#include <algorithm>
#include <cstring>

#include "transport/rc/responder_impl.h"

namespace transport {
namespace {

constexpr uint64_t kMaxMessage = uint64_t{1} << 31;  // bytes
constexpr size_t kWord = 8;                          // bytes of an atomic

}  // namespace

uint64_t Responder::Impl::ReadPackets(uint64_t length) const {
  return std::max<uint64_t>(1, (length + mtu() - 1) / mtu());
}

Resource* Responder::Impl::NewResource() {
  if (resources.empty()) return nullptr;
  if (next_resource - first_resource == resources.size()) {
    const Resource& oldest = resources[first_resource % resources.size()];
    if (oldest.pending && !oldest.answered) return nullptr;
    ++first_resource;
    first_pending = std::max(first_pending, first_resource);
  }
  Resource* resource = &resources[next_resource % resources.size()];
  *resource = Resource{};
  resource->first_psn = resource->last_psn = expected;
  resource->start_psn = resource->next_psn = expected;
  return resource;
}

Responder::Impl::Outcome Responder::Impl::ExecuteRead(
    const wire::PacketView& packet, Time now) {
  const wire::Reth reth = packet.reth();
  if (reth.length > kMaxMessage) return Invalid(now);
  const MemoryAccess access = {.key = reth.rkey,
                               .remote = true,
                               .pd = qp.config_.pd,
                               .qpn = qp.qpn(),
                               .access = kAccessRemoteRead,
                               .va = reth.va,
                               .length = reth.length};
  SpanList spans;
  if (reth.length > 0 &&
      memory().Translate(access, &spans) != MemoryStatus::kOk) {
    return AccessDenied(now);
  }
  Resource* resource = NewResource();
  if (resource == nullptr) return Invalid(now);
  ++next_resource;
  resource->operation = packet.operation();
  resource->last_psn = expected + ReadPackets(reth.length) - 1;
  resource->va = reth.va;
  resource->rkey = reth.rkey;
  resource->length = reth.length;
  resource->stop = reth.length;
  resource->msn = ++msn;
  resource->pending = true;
  return Outcome::kExecuted;
}

uint8_t* Responder::Impl::AtomicWord(uint32_t rkey, uint64_t va,
                                     uint32_t access, Outcome* outcome,
                                     Time now) {
  if (va % kWord != 0) {
    *outcome = Invalid(now);
    return nullptr;
  }
  const MemoryAccess word = {.key = rkey,
                             .remote = true,
                             .pd = qp.config_.pd,
                             .qpn = qp.qpn(),
                             .access = access,
                             .va = va,
                             .length = kWord};
  SpanList spans;
  // A region may have an address of its own: the memory below must be aligned
  // as well, and in one piece.
  if (memory().Translate(word, &spans) != MemoryStatus::kOk || spans.empty() ||
      spans[0].length < kWord ||
      reinterpret_cast<uintptr_t>(spans[0].data) % kWord != 0) {
    *outcome = AccessDenied(now);
    return nullptr;
  }
  return spans[0].data;
}

Responder::Impl::Outcome Responder::Impl::ExecuteAtomic(
    const wire::PacketView& packet, Time now) {
  const wire::AtomicEth atomic = packet.atomic();
  Outcome outcome = Outcome::kExecuted;
  uint8_t* word =
      AtomicWord(atomic.rkey, atomic.va, kAccessRemoteAtomic, &outcome, now);
  if (word == nullptr) return outcome;
  Resource* resource = NewResource();
  if (resource == nullptr) return Invalid(now);
  uint64_t original = 0;
  const bool done =
      packet.operation() == wire::Operation::kCompareSwap
          ? memory().CompareSwap(word, atomic.compare, atomic.swap_or_add,
                                 &original)
          : memory().FetchAdd(word, atomic.swap_or_add, &original);
  if (!done) return AccessDenied(now);
  ++next_resource;
  resource->operation = packet.operation();
  resource->va = atomic.va;
  resource->rkey = atomic.rkey;
  resource->original = original;
  resource->msn = ++msn;
  resource->pending = true;
  return outcome;
}

Responder::Impl::Outcome Responder::Impl::ExecuteAtomicWrite(
    const wire::PacketView& packet, Time now) {
  const wire::Reth reth = packet.reth();
  if (reth.length != kWord) return Invalid(now);
  Outcome outcome = Outcome::kExecuted;
  uint8_t* word =
      AtomicWord(reth.rkey, reth.va, kAccessRemoteWrite, &outcome, now);
  if (word == nullptr) return outcome;
  Resource* resource = NewResource();
  if (resource == nullptr) return Invalid(now);
  // One store that nobody sees by halves; the bytes stay in their order.
  uint64_t value;
  std::memcpy(&value, packet.payload().data(), kWord);
  uint64_t found = 0;
  uint64_t assumed = 0;
  do {
    assumed = found;
    if (!memory().CompareSwap(word, assumed, value, &found)) {
      return AccessDenied(now);
    }
  } while (found != assumed);
  ++next_resource;
  resource->operation = packet.operation();
  resource->va = reth.va;
  resource->rkey = reth.rkey;
  resource->msn = ++msn;
  resource->pending = true;
  return outcome;
}

}  // namespace transport
