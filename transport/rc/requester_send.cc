// What a requester sends next, and whether the window permits it.
#include <algorithm>
#include <cassert>

#include "transport/rc/requester.h"

namespace transport {

Requester::Source Requester::NextSource(Time now) const {
  if (!phase_.running || (rnr_until_ != kNever && now < rnr_until_)) {
    return Source::kNothing;
  }
  if (plan_.out_of_turn()) return Source::kResend;
  if (missing_ != nullptr && DueRange() != nullptr) return Source::kMissing;
  if (snd_.nxt_index >= failures_.local_index) return Source::kNothing;
  if (plan_.one_at_a_time && snd_.outstanding()) return Source::kNothing;
  if (snd_.nxt < snd_.max) {
    return ReplayIsDue() ? Source::kReplay : Source::kNothing;
  }
  return NewIsQueued() && NewIsDue() ? Source::kNew : Source::kNothing;
}

// A READ that has been answered in part has been executed as a whole, and the
// peer repeats any part. One part is requested at a time, from the first one
// on.
bool Requester::ReplayIsDue() const {
  if (!snd_.outstanding()) return true;
  if (flight_.LimitedToShare() && !ShareAllows(ReplayCost())) return false;
  if (!plan_.HasCredit(snd_.nxt - snd_.una) ||
      peer_.WaitsForAnswer(snd_.una, snd_.nxt)) {
    return false;
  }
  if (queue().at(snd_.nxt_index).operation().kind != SendKind::kRead) {
    return true;
  }
  const OutstandingReads::Entry* read = reads_.Find(snd_.nxt);
  assert(read != nullptr);
  return snd_.nxt == FirstMissing(*read);
}

uint64_t Requester::ReplayCost() const {
  const SendWqe& wqe = queue().at(snd_.nxt_index);
  uint64_t end = snd_.nxt + 1;
  if (wqe.operation().kind == SendKind::kRead) {
    const OutstandingReads::Entry* read = reads_.Find(snd_.nxt);
    assert(read != nullptr);
    end = ReplayEnd(*read);
  }
  return snd_.CostBefore(wqe, end) - snd_.CostBefore(wqe, snd_.nxt);
}

inline bool Requester::NewIsDue() const {
  const bool begins = snd_.nxt_index == snd_.begun;
  if (snd_.max - snd_.una >= kMaxOutstanding) return false;
  const SendWqe& wqe = queue().at(snd_.nxt_index);
  const SendOperation& operation = wqe.operation();
  if (operation.kind == SendKind::kLocal) return false;
  if (operation.takes_receive && !HasCreditFor(wqe, begins)) return false;
  // If none may be outstanding, sending finds the error.
  if (operation.takes_rd_atomic() && reads_.full() && reads_.capacity() != 0) {
    return false;
  }
  const bool fence = begins && (wqe.flags & kSendFence) != 0;
  return (!fence && !flight_.LimitedToShare()) || !NewIsHeld(fence);
}

bool Requester::NewIsHeld(bool fence) const {
  return (fence && FenceHolds()) ||
         (flight_.LimitedToShare() && !ShareAllows(NewCost()));
}

bool Requester::FenceHolds() const {
  if (!reads_.empty()) return true;
  if (!core_.config.stops_at_data_errors) return false;
  if (phase_.data_error) return true;
  // All packets of these requests have been sent, so an error in them is known.
  for (uint64_t i = queue().head(); i != snd_.nxt_index; ++i) {
    if (core_.HasDataError(i)) return true;
  }
  return false;
}

// For a READ, the cost of one packet of its response.
uint64_t Requester::NewCost() const {
  const SendWqe& wqe = queue().at(snd_.nxt_index);
  if (wqe.operation().kind == SendKind::kRead) return snd_.PacketCost();
  const uint64_t offset =
      snd_.nxt_index == snd_.begun ? 0 : (snd_.max - wqe.first) * snd_.mtu;
  return std::min<uint64_t>(wqe.length - offset, snd_.mtu) +
         Path::kPacketOverhead;
}

Requester::Next Requester::Decide(Time now, Item* item) const {
  switch (NextSource(now)) {
    case Source::kNothing:
      break;
    case Source::kResend:
      return DecideResend(item);
    case Source::kMissing:
      return DecideMissing(item);
    case Source::kReplay:
      return DecideReplay(item);
    case Source::kNew:
      return DecideNew(item);
  }
  return Next::kNothing;
}

Requester::Next Requester::DecideResend(Item* item) const {
  const uint64_t seq = plan_.next();
  const OutstandingReads::Entry* read = reads_.Find(seq);
  *item = {.index = IndexOf(seq),
           .seq = seq,
           .count = read != nullptr
                        ? static_cast<uint32_t>(MissingEnd(seq, *read) - seq)
                        : 1,
           .out_of_turn = true};
  return Next::kPacket;
}

Requester::Next Requester::DecideReplay(Item* item) const {
  const SendWqe& wqe = queue().at(snd_.nxt_index);
  *item = {.index = snd_.nxt_index, .seq = snd_.nxt};
  // The first packet of a replay does not wait for the window: others that
  // share the path could keep it full forever.
  const bool always = !snd_.outstanding();
  if (wqe.operation().kind == SendKind::kRead) {
    const OutstandingReads::Entry* read = reads_.Find(snd_.nxt);
    assert(read != nullptr);
    const uint64_t count = ReplayEnd(*read) - snd_.nxt;
    if (snd_.nxt > read->first) {
      item->count = ReadCount(count, always);
      return item->count > 0 ? Next::kPacket : Next::kWindow;
    }
    // The peer may not have received this request, and the PSNs of later ones
    // depend on where it ends: so it ends where it did before.
    item->count = static_cast<uint32_t>(count);
  }
  return always || WindowAllows(ReplayCost()) ? Next::kPacket : Next::kWindow;
}

inline Requester::Next Requester::DecideNew(Item* item) const {
  const bool begins = snd_.nxt_index == snd_.begun;
  const SendWqe& wqe = queue().at(snd_.nxt_index);
  const SendOperation& operation = wqe.operation();
  *item = {.index = snd_.nxt_index, .seq = snd_.max, .begins = begins};
  if (operation.takes_rd_atomic() && reads_.capacity() == 0) {
    return Next::kPacket;
  }
  if (operation.kind == SendKind::kRead) {
    const uint64_t packets =
        begins ? snd_.PacketsOf(wqe.length) : wqe.end() - snd_.max;
    item->count = ReadCount(packets, false);
    return item->count > 0 ? Next::kPacket : Next::kWindow;
  }
  return WindowAllows(NewCost()) ? Next::kPacket : Next::kWindow;
}

// When nothing else is outstanding, the first packet of a message beyond the
// limit may be sent. Once that is acknowledged, the message has a receive.
bool Requester::HasCreditFor(const SendWqe& wqe, bool begins) const {
  if (credits_.Include(begins ? credits_.NextNumber() : wqe.message)) {
    return true;
  }
  if (begins || snd_.max == wqe.first) return snd_.una == snd_.max;
  return snd_.una > wqe.first;
}

}  // namespace transport
