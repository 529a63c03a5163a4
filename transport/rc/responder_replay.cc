// Duplicate requests (IBA vol. 1, 9.7.4.4): answered again, and only READs
// executed again. Nothing here touches the message that is being assembled.
#include <algorithm>

#include "transport/rc/responder_impl.h"

namespace transport {

void Responder::Impl::OnDuplicate(const wire::PacketView& packet,
                                  uint64_t psn) {
  ++qp.counters_.duplicates;
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
  }
}

// The one whose PSNs include `psn`.
Resource* Responder::Impl::FindResource(uint64_t psn) {
  for (uint64_t n = next_resource; n > first_resource; --n) {
    Resource& resource = resources[(n - 1) % resources.size()];
    if (resource.last_psn < psn) return nullptr;
    if (resource.first_psn <= psn) return &resource;
  }
  return nullptr;
}

// An ACK beyond a READ or an atomic would tell the requester that its response
// was lost: the ACK stops before the next one.
void Responder::Impl::AcknowledgeAgain(uint64_t psn) {
  uint64_t last = expected - 1;
  uint32_t last_msn = msn;
  for (uint64_t n = next_resource; n > first_resource; --n) {
    const Resource& resource = resources[(n - 1) % resources.size()];
    if (resource.last_psn < psn) break;
    if (resource.first_psn <= psn) {  // that PSN was no SEND or WRITE
      ++qp.counters_.dropped_window;
      return;
    }
    last = resource.first_psn - 1;
    last_msn = resource.msn - 1;
  }
  if (!repeated_ack || *repeated_ack < last) {
    repeated_ack = last;
    repeated_ack_msn = last_msn;
  }
}

void Responder::Impl::RepeatRead(const wire::PacketView& packet, uint64_t psn) {
  Resource* resource = FindResource(psn);
  const wire::Reth reth = packet.reth();
  const auto drop = [this] { ++qp.counters_.dropped_window; };
  if (resource == nullptr ||
      resource->operation != wire::Operation::kReadRequest) {
    return drop();
  }
  // It may ask for less than the first time: its PSN says from where on.
  const uint64_t offset = (psn - resource->first_psn) * mtu();
  if (reth.rkey != resource->rkey || reth.va != resource->va + offset ||
      reth.length > resource->length - offset ||
      (reth.length == 0 && resource->length != 0)) {
    return drop();
  }
  Repeat(resource, psn, offset + reth.length);
}

void Responder::Impl::RepeatAtomic(const wire::PacketView& packet,
                                   uint64_t psn) {
  Resource* resource = FindResource(psn);
  const wire::OpcodeInfo& info = packet.info();
  const uint32_t rkey =
      info.Has(wire::kAtomicEth) ? packet.atomic().rkey : packet.reth().rkey;
  const uint64_t va =
      info.Has(wire::kAtomicEth) ? packet.atomic().va : packet.reth().va;
  if (resource == nullptr || resource->operation != packet.operation() ||
      resource->rkey != rkey || resource->va != va) {
    ++qp.counters_.dropped_window;
    return;
  }
  Repeat(resource, psn, 0);
}

// A response that is under way starts again at the PSN that is asked for: more
// duplicates do not make more work than the last of them.
void Responder::Impl::Repeat(Resource* resource, uint64_t psn, uint64_t stop) {
  resource->pending = true;
  resource->start_psn = resource->next_psn = psn;
  resource->stop = stop;
  for (uint64_t n = first_resource; n < next_resource; ++n) {
    if (&resources[n % resources.size()] == resource) {
      first_pending = std::min(first_pending, n);
    }
  }
}

}  // namespace transport
