// READs and atomics: how much is asked for, and what is done with the answers.
#include <algorithm>
#include <cstring>

#include "transport/rc/requester_impl.h"

namespace transport {
namespace {

// A window is asked for in this many requests, so that one can be on its way
// while another is answered; in fewer if there are fewer slots.
constexpr uint32_t kRequestsPerWindow = 4;
// But not for less than this many packets each, if the window holds them.
constexpr uint64_t kLeastRequest = 8;

}  // namespace

uint32_t Requester::Impl::ReadCount(uint64_t remaining, bool always) const {
  const uint64_t window = path()->window();
  const uint64_t in_flight = path()->in_flight();
  const uint64_t room =
      window > in_flight ? (window - in_flight) / PacketCost() : 0;
  const uint64_t requests = std::min(slots.capacity(), kRequestsPerWindow);
  const uint64_t packets = std::max<uint64_t>(1, window / PacketCost());
  const uint64_t target =
      std::max(packets / requests, std::min(packets, kLeastRequest));
  const uint64_t wanted = std::min(remaining, target);
  const uint64_t count = std::min(wanted, room);
  if (count == wanted) return static_cast<uint32_t>(count);
  if (always || in_flight == 0) {
    return static_cast<uint32_t>(std::max<uint64_t>(1, count));
  }
  // Many small requests would do, but badly: small ones are made only by who
  // has nothing else to wait for.
  const bool worthwhile = count * 2 >= target || flight == 0;
  return worthwhile ? static_cast<uint32_t>(count) : 0;
}

MemoryStatus Requester::Impl::CheckTarget(uint64_t index, uint64_t offset,
                                          uint64_t bytes) {
  LocalBuffer target(*qp.config().memory, qp.config().pd, qp.qpn(),
                     kAccessLocalWrite, bytes);
  target.Seek(queue.sges(index), offset);
  return target.Check(bytes);
}

// Requests are answered in packets of first, middle and last position.
bool Requester::Impl::IsExpectedPosition(const Slots::Slot& slot, uint64_t seq,
                                         wire::Operation operation) const {
  if (slot.replayed) return true;  // may answer another part of it
  const bool first = seq == slot.first;
  const bool last = seq + 1 == slot.end;
  if (first && last) return operation == wire::Operation::kReadResponseOnly;
  if (first) return operation == wire::Operation::kReadResponseFirst;
  if (last) return operation == wire::Operation::kReadResponseLast;
  return operation == wire::Operation::kReadResponseMiddle;
}

void Requester::Impl::OnReadResponse(uint64_t seq,
                                     const wire::PacketView& packet, Time now) {
  if (packet.info().Has(wire::kAeth)) {
    const wire::Aeth aeth = packet.aeth();
    if (wire::AethKindOf(aeth.syndrome) != wire::AethKind::kAck) return;
    UpdateCredits(seq, aeth);
  }
  Acknowledge(seq, now);
  if (una < seq) {
    OnGap(now, /*by_ack=*/false);
    return;
  }
  const uint64_t head = queue.head();
  const SendWqe& wqe = queue.at(head);
  const SendOperation& operation = wqe.operation();
  const bool takes_read_response =
      operation.kind == SendKind::kRead ||
      (operation.kind == SendKind::kAtomic && operation.response_bytes == 0);
  const uint64_t offset = (seq - wqe.first) * mtu;
  const uint64_t expected = operation.kind == SendKind::kRead
                                ? std::min<uint64_t>(wqe.length - offset, mtu)
                                : 0;
  if (!takes_read_response || packet.payload().size() != expected ||
      !IsExpectedPosition(slots.front(), seq, packet.operation())) {
    Fail(WcStatus::kBadResponse, now);
    return;
  }
  if (expected > 0) {
    LocalBuffer target(*qp.config().memory, qp.config().pd, qp.qpn(),
                       kAccessLocalWrite, expected);
    target.Seek(queue.sges(head), offset);
    if (target.Write(packet.payload().data(), expected) != MemoryStatus::kOk) {
      Fail(WcStatus::kLocalProtectionError, now);
      return;
    }
  }
  AdvanceTo(seq + 1, now);
  Proceed(now);
}

void Requester::Impl::OnAtomicResponse(uint64_t seq,
                                       const wire::PacketView& packet,
                                       Time now) {
  const wire::Aeth aeth = packet.aeth();
  if (wire::AethKindOf(aeth.syndrome) != wire::AethKind::kAck) return;
  UpdateCredits(seq, aeth);
  Acknowledge(seq, now);
  if (una < seq) {
    OnGap(now, /*by_ack=*/false);
    return;
  }
  const uint64_t head = queue.head();
  const SendOperation& operation = queue.at(head).operation();
  if (operation.kind != SendKind::kAtomic || operation.response_bytes == 0) {
    Fail(WcStatus::kBadResponse, now);
    return;
  }
  const uint64_t original = packet.atomic_ack().original;
  uint8_t bytes[kAtomicSize];  // host order, as the verbs want it
  std::memcpy(bytes, &original, sizeof(bytes));
  LocalBuffer target(*qp.config().memory, qp.config().pd, qp.qpn(),
                     kAccessLocalWrite, sizeof(bytes));
  target.Seek(queue.sges(head), 0);
  if (target.Write(bytes, sizeof(bytes)) != MemoryStatus::kOk) {
    Fail(WcStatus::kLocalProtectionError, now);
    return;
  }
  AdvanceTo(seq + 1, now);
  Proceed(now);
}

}  // namespace transport
