// Duplicate requests (IBA vol. 1, 9.7.4.4): answered again, and only READs
// executed again. Nothing here touches the message that is being assembled.
#include <algorithm>

#include "transport/rc/responder.h"

namespace transport {

void Responder::OnDuplicate(const wire::PacketView& packet, uint64_t psn,
                            Time now) {
  ++core_.counters.duplicates;
  if (gap_wait_.IsReported(psn)) gap_wait_.OnCopy(packet, now);
  switch (KindOf(packet.operation())) {
    case RequestKind::kSend:
    case RequestKind::kWrite:
      AcknowledgeAgain(psn);
      break;
    case RequestKind::kRead:
      RepeatRead(packet, psn);
      break;
    case RequestKind::kAtomic:
    case RequestKind::kAtomicWrite:
    case RequestKind::kFlush:
      RepeatAtomic(packet, psn);
      break;
    case RequestKind::kReserved:
      ++core_.counters.dropped_window;
      break;
  }
}

// An ACK beyond a READ or an atomic tells the requester that its response was
// lost. So the ACK stops before the next READ or atomic.
void Responder::AcknowledgeAgain(uint64_t psn) {
  uint64_t last = expected_ - 1;
  uint32_t last_msn = msn_;
  for (size_t i = resources_.size(); i > 0; --i) {
    const Resource& resource = resources_.at(i - 1);
    if (resource.last_psn < psn) break;
    if (resource.first_psn <= psn) {  // that PSN was no SEND or WRITE
      ++core_.counters.dropped_window;
      return;
    }
    last = resource.first_psn - 1;
    last_msn = resource.msn - 1;
  }
  if (owed_.repeated_psn < last) {
    owed_.repeated_psn = last;
    owed_.repeated_msn = last_msn;
  }
}

void Responder::RepeatRead(const wire::PacketView& packet, uint64_t psn) {
  Resource* resource = resources_.Find(psn);
  const wire::Reth reth = packet.reth();
  const auto drop = [this] { ++core_.counters.dropped_window; };
  if (resource == nullptr ||
      resource->operation != wire::Operation::kReadRequest) {
    return drop();
  }
  // A repeated request may ask for less than the first one did; its PSN tells
  // where it begins.
  const uint64_t offset = (psn - resource->first_psn) * mtu();
  if (reth.rkey != resource->rkey || reth.va != resource->va + offset ||
      reth.length > resource->length - offset ||
      (reth.length == 0 && resource->length != 0)) {
    return drop();
  }
  RepeatPart(resource, psn, static_cast<uint32_t>(offset + reth.length));
}

void Responder::RepeatAtomic(const wire::PacketView& packet, uint64_t psn) {
  Resource* resource = resources_.Find(psn);
  const wire::OpcodeInfo& info = packet.info();
  const uint32_t rkey =
      info.Has(wire::kAtomicEth) ? packet.atomic().rkey : packet.reth().rkey;
  const uint64_t va =
      info.Has(wire::kAtomicEth) ? packet.atomic().va : packet.reth().va;
  // rxe of Linux 6.12 repeats an ATOMIC WRITE with address 0, and the address
  // of a FLUSH of a whole region does not count. Their responses carry no
  // memory.
  const bool same_address =
      resource != nullptr &&
      (resource->va == va ||
       packet.operation() == wire::Operation::kAtomicWrite ||
       (info.Has(wire::kFeth) &&
        packet.feth().selectivity == wire::kSelectivityWholeMr));
  if (resource == nullptr || resource->operation != packet.operation() ||
      resource->rkey != rkey || !same_address) {
    ++core_.counters.dropped_window;
    return;
  }
  Repeat(resource, psn, 0);
}

// A requester may ask for missing packets while the rest of the response is
// being sent: the missing part goes first, then the rest. If it asks for the
// whole rest from the first missing packet on, only that is sent. Many
// duplicates cause no more work than the last one.
void Responder::RepeatPart(Resource* resource, uint64_t psn, uint32_t stop) {
  if (resource->pending) {
    if (psn >= resource->next_psn && stop < resource->stop) return;
    if (resource->rest == 0 && stop < resource->stop) {
      const uint64_t end = (uint64_t{stop} + mtu() - 1) / mtu();
      const uint64_t rest =
          std::max(end, resource->next_psn - resource->first_psn);
      // Nothing is left if the part ends within the last packet.
      if (rest * mtu() < resource->stop) {
        resource->rest = static_cast<uint32_t>(rest);
        resource->rest_stop = resource->stop;
      }
    }
    if (resource->rest_stop <= stop) resource->rest = 0;
  }
  Repeat(resource, psn, stop);
}

void Responder::Repeat(Resource* resource, uint64_t psn, uint32_t stop) {
  resource->start_psn = resource->next_psn = psn;
  resource->stop = stop;
  resources_.SetPending(resource);
}

}  // namespace transport
