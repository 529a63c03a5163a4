// READs and atomics: how much is asked for, and what is done with the answers.
#include <algorithm>
#include <cstring>

#include "transport/base/local_buffer.h"
#include "transport/rc/requester.h"

namespace transport {
namespace {

// A window is asked for in this many requests, so that one can be on its way
// while another is answered; in fewer if fewer may be outstanding.
constexpr uint32_t kRequestsPerWindow = 4;
// But not for less than this many packets each, if the window holds them.
constexpr uint64_t kLeastRequest = 8;

}  // namespace

uint32_t Requester::ReadCount(uint64_t remaining, bool always) const {
  const uint64_t room = PacketsAllowed();
  const uint64_t requests = std::min(reads_.capacity(), kRequestsPerWindow);
  const uint64_t packets =
      std::max<uint64_t>(1, path()->window() / PacketCost());
  const uint64_t target =
      std::max(packets / requests, std::min(packets, kLeastRequest));
  const uint64_t wanted = std::min(remaining, target);
  const uint64_t count = std::min(wanted, room);
  if (count == wanted) return static_cast<uint32_t>(count);
  if (always) return static_cast<uint32_t>(std::max<uint64_t>(1, count));
  // Many small requests would do, but badly: small ones are made only by who
  // has nothing else to wait for, or is waited for.
  const bool worthwhile =
      count * 2 >= target || flight_ == 0 || LimitedToShare();
  return worthwhile ? static_cast<uint32_t>(count) : 0;
}

MemoryStatus Requester::CheckTarget(uint64_t index, uint64_t offset,
                                    uint64_t bytes) {
  LocalBuffer target(*core_.config.memory, core_.config.pd, core_.config.qpn,
                     kAccessLocalWrite, bytes);
  target.Seek(queue_.sges(index), offset);
  return target.Check(bytes);
}

// Requests are answered in packets of first, middle and last position.
bool Requester::IsExpectedPosition(const OutstandingReads::Entry& read,
                                   uint64_t seq,
                                   wire::Operation operation) const {
  if (read.replayed) return true;  // may answer another part of it
  const bool first = seq == read.first;
  const bool last = seq + 1 == read.end;
  if (first && last) return operation == wire::Operation::kReadResponseOnly;
  if (first) return operation == wire::Operation::kReadResponseFirst;
  if (last) return operation == wire::Operation::kReadResponseLast;
  return operation == wire::Operation::kReadResponseMiddle;
}

void Requester::OnReadResponse(uint64_t seq, const wire::PacketView& packet,
                               Time now) {
  if (packet.info().Has(wire::kAeth)) {
    UpdateCredits(seq, packet.aeth());
  }
  Acknowledge(seq, now);
  if (snd_una_ < seq) {
    OnGap(now, /*by_ack=*/false);
    return;
  }
  const uint64_t head = queue_.head();
  const SendWqe& wqe = queue_.at(head);
  const SendOperation& operation = wqe.operation();
  const bool takes_read_response =
      operation.kind == SendKind::kRead ||
      (operation.kind == SendKind::kAtomic && operation.response_bytes == 0);
  const uint64_t offset = (seq - wqe.first) * mtu_;
  const uint64_t expected = operation.kind == SendKind::kRead
                                ? std::min<uint64_t>(wqe.length - offset, mtu_)
                                : 0;
  if (!takes_read_response || packet.payload().size() != expected ||
      !IsExpectedPosition(reads_.front(), seq, packet.operation())) {
    Fail(WcStatus::kBadResponse, now);
    return;
  }
  if (expected > 0) {
    LocalBuffer target(*core_.config.memory, core_.config.pd, core_.config.qpn,
                       kAccessLocalWrite, expected);
    target.Seek(queue_.sges(head), offset);
    if (target.Write(packet.payload().data(), expected) != MemoryStatus::kOk) {
      Fail(WcStatus::kLocalProtectionError, now);
      return;
    }
  }
  AdvanceTo(seq + 1, now);
  Proceed(now);
}

void Requester::OnAtomicResponse(uint64_t seq, const wire::PacketView& packet,
                                 Time now) {
  UpdateCredits(seq, packet.aeth());
  Acknowledge(seq, now);
  if (snd_una_ < seq) {
    OnGap(now, /*by_ack=*/false);
    return;
  }
  const uint64_t head = queue_.head();
  const SendOperation& operation = queue_.at(head).operation();
  if (operation.kind != SendKind::kAtomic || operation.response_bytes == 0) {
    Fail(WcStatus::kBadResponse, now);
    return;
  }
  const uint64_t original = packet.atomic_ack().original;
  uint8_t bytes[kAtomicSize];  // host order, as the verbs want it
  std::memcpy(bytes, &original, sizeof(bytes));
  LocalBuffer target(*core_.config.memory, core_.config.pd, core_.config.qpn,
                     kAccessLocalWrite, sizeof(bytes));
  target.Seek(queue_.sges(head), 0);
  if (target.Write(bytes, sizeof(bytes)) != MemoryStatus::kOk) {
    Fail(WcStatus::kLocalProtectionError, now);
    return;
  }
  AdvanceTo(seq + 1, now);
  Proceed(now);
}

}  // namespace transport
