// READs and atomics: how much is requested, and what is done with responses.
#include <algorithm>
#include <cstring>

#include "transport/base/local_buffer.h"
#include "transport/rc/requester.h"

namespace transport {
namespace {

// A window is filled with this many READ requests, so that one is on its way
// while another is answered; with fewer if fewer may be outstanding.
constexpr uint32_t kRequestsPerWindow = 4;
// Each of these is for at least this many packets, if the window holds them.
constexpr uint64_t kMinRequest = 8;

}  // namespace

uint32_t Requester::ReadCount(uint64_t remaining, bool always) const {
  const uint64_t room = PacketsAllowed();
  const uint64_t requests = std::min(reads_.capacity(), kRequestsPerWindow);
  const uint64_t packets =
      std::max<uint64_t>(1, path()->window() / snd_.PacketCost());
  const uint64_t target =
      std::max(packets / requests, std::min(packets, kMinRequest));
  const uint64_t wanted = std::min(remaining, target);
  const uint64_t count = std::min(wanted, room);
  if (count == wanted) return static_cast<uint32_t>(count);
  if (always) return static_cast<uint32_t>(std::max<uint64_t>(1, count));
  // Small requests are inefficient. They are sent only if nothing else is in
  // flight, or if a share is all that may be.
  const bool worthwhile =
      count * 2 >= target || flight_.bytes() == 0 || flight_.LimitedToShare();
  return worthwhile ? static_cast<uint32_t>(count) : 0;
}

MemoryStatus Requester::CheckTarget(uint64_t index, uint64_t offset,
                                    uint64_t bytes) {
  LocalBuffer target(*core_.config.memory, core_.config.pd, core_.config.qpn,
                     kAccessLocalWrite, bytes);
  target.Seek(queue().sges(index), offset);
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

WcResult Requester::Place(uint64_t index, const OutstandingReads::Entry& read,
                          uint64_t seq, const wire::PacketView& packet) {
  const SendWqe& wqe = queue().at(index);
  const SendOperation& operation = wqe.operation();
  const bool atomic = operation.kind == SendKind::kAtomic;
  constexpr WcResult kWrong(WcStatus::kBadResponse, Reason::kBadResponse);
  uint8_t result[kAtomicSize];  // host order, as the verbs want it
  const uint8_t* from = packet.payload().data();
  uint64_t offset = 0;
  uint64_t bytes = 0;
  if (packet.operation() == wire::Operation::kAtomicAcknowledge) {
    if (!atomic || operation.response_bytes == 0) return kWrong;
    const uint64_t original = packet.atomic_ack().original;
    std::memcpy(result, &original, sizeof(result));
    from = result;
    bytes = sizeof(result);
  } else {
    if (atomic && operation.response_bytes != 0) return kWrong;
    if (operation.kind == SendKind::kRead) {
      offset = (seq - wqe.first) * snd_.mtu;
      bytes = std::min<uint64_t>(wqe.length - offset, snd_.mtu);
    }
    if (packet.payload().size() != bytes ||
        !IsExpectedPosition(read, seq, packet.operation())) {
      return kWrong;
    }
  }
  if (bytes == 0) return {};
  LocalBuffer target(*core_.config.memory, core_.config.pd, core_.config.qpn,
                     kAccessLocalWrite, bytes);
  target.Seek(queue().sges(index), offset);
  const MemoryStatus status = target.Write(from, bytes);
  if (status == MemoryStatus::kOk) return {};
  return {WcStatus::kLocalProtectionError, LocalReason(status)};
}

bool Requester::NeedsOrder(uint64_t index) const {
  return std::ranges::any_of(queue().sges(index), [this](const Sge& sge) {
    return core_.config.memory->NeedsOrder(sge.lkey);
  });
}

void Requester::OnAnswer(uint64_t seq, const wire::PacketView& packet,
                         Time now) {
  if (packet.info().Has(wire::kAeth)) credits_.OnAeth(seq, packet.aeth());
  if (seq == snd_.una) {
    peer_.OnAcknowledged(seq);  // all else is known
  } else {
    Acknowledge(seq, now);
  }
  const bool ahead = snd_.una < seq;
  if (ahead && !AdmitAhead(seq, packet, now)) return;
  if (ahead && NeedsOrder(IndexOf(seq))) {
    ++core_.counters.dropped_response;
    // This response is requested again, together with those missing before it.
    if (NoteMissing(seq + 1, now) && phase_.running) AskForDue(now);
    return;
  }
  const WcResult result =
      ahead ? Place(IndexOf(seq), *reads_.Find(seq), seq, packet)
            : Place(queue().head(), reads_.front(), seq, packet);
  if (!result.ok()) {
    // A response ahead of its turn never fails the work request. It is
    // requested again when its turn comes.
    ahead ? void(++core_.counters.dropped_response) : Fail(result, now);
  } else if (ahead || HasMissing()) {
    TakeAhead(seq, now);
  } else {
    AdvanceTo(seq + 1, now);
    Proceed(now);
  }
}

}  // namespace transport
