// What a requester sends next, and how its packets are made.
#include <algorithm>
#include <cassert>

#include "transport/rc/requester.h"

namespace transport {
namespace {

// Messages of one packet ask for one every so many.
constexpr uint32_t kMaxUnaskedMessages = 16;
// A longer message need not if so many follow it in the same turn: its
// completion can come with the next one's, and whoever waits for it has others
// to wait for. The turn's last packet asks, since the next one may be long in
// coming, and would keep what is in flight from others.
constexpr uint64_t kManyQueued = 8;
// PSNs that a replay comes, at least.
constexpr uint64_t kLeastReplay = 4;
// Sent again after a NAK before an answer has to show what the peer keeps.
constexpr uint64_t kTriedPackets = 16;

}  // namespace

uint64_t Requester::IndexOf(uint64_t seq) const {
  uint64_t low = queue_.head();
  uint64_t high = begun_;
  while (high - low > 1) {
    const uint64_t middle = low + (high - low) / 2;
    (queue_.at(middle).first <= seq ? low : high) = middle;
  }
  return low;
}

Requester::Source Requester::NextSource(Time now) const {
  if (!running_ || (rnr_until_ != kNever && now < rnr_until_)) {
    return Source::kNothing;
  }
  if (resend_ != kNone) return Source::kResend;
  if (missing_ != nullptr && DueRange() != nullptr) return Source::kMissing;
  if (snd_nxt_index_ >= failed_index_) return Source::kNothing;
  if (rnr_probe_ && outstanding()) return Source::kNothing;
  if (snd_nxt_ < snd_max_) {
    return ReplayIsDue() ? Source::kReplay : Source::kNothing;
  }
  return NewIsQueued() && NewIsDue() ? Source::kNew : Source::kNothing;
}

// A READ of which part has been answered has been executed as a whole, and the
// peer repeats any part: one part at a time, from the first one on.
bool Requester::ReplayIsDue() const {
  if (!outstanding()) return true;
  if (LimitedToShare() && ShareIsUsed(ReplayCost())) return false;
  if (!HasReplayCredit() || TriesWhatPeerKeeps()) return false;
  if (queue_.at(snd_nxt_index_).operation().kind != SendKind::kRead) {
    return true;
  }
  const OutstandingReads::Entry* read = reads_.Find(snd_nxt_);
  assert(read != nullptr);
  return snd_nxt_ == FirstMissing(*read);
}

bool Requester::HasReplayCredit() const {
  return replay_credit_ > 0 || snd_nxt_ - snd_una_ < kLeastReplay;
}

bool Requester::TriesWhatPeerKeeps() const {
  return peer_keeps_ == PeerKeeps::kUnknown && nak_seq_ == snd_una_ &&
         snd_nxt_ >= snd_una_ + kTriedPackets;
}

uint64_t Requester::ReplayCost() const {
  const SendWqe& wqe = queue_.at(snd_nxt_index_);
  uint64_t end = snd_nxt_ + 1;
  if (wqe.operation().kind == SendKind::kRead) {
    const OutstandingReads::Entry* read = reads_.Find(snd_nxt_);
    assert(read != nullptr);
    end = ReplayEnd(*read);
  }
  return CostBefore(wqe, end) - CostBefore(wqe, snd_nxt_);
}

bool Requester::NewIsDue() const {
  const bool begins = snd_nxt_index_ == begun_;
  if (snd_max_ - snd_una_ >= kMaxOutstanding) return false;
  const SendWqe& wqe = queue_.at(snd_nxt_index_);
  const SendOperation& operation = wqe.operation();
  if (operation.kind == SendKind::kLocal) return false;
  if (begins && (wqe.flags & kSendFence) != 0 && !reads_.empty()) return false;
  if (operation.takes_receive && !HasCreditFor(wqe, begins)) return false;
  if (LimitedToShare() && ShareIsUsed(NewCost())) return false;
  // Where none may be outstanding, sending finds the error.
  return !operation.takes_rd_atomic() || !reads_.full() ||
         reads_.capacity() == 0;
}

// Of a READ, what one packet of its response costs.
uint64_t Requester::NewCost() const {
  const SendWqe& wqe = queue_.at(snd_nxt_index_);
  if (wqe.operation().kind == SendKind::kRead) return PacketCost();
  const uint64_t offset =
      snd_nxt_index_ == begun_ ? 0 : (snd_max_ - wqe.first) * mtu_;
  return std::min<uint64_t>(wqe.length - offset, mtu_) + Path::kPacketOverhead;
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
  const OutstandingReads::Entry* read = reads_.Find(resend_);
  *item = {.index = IndexOf(resend_),
           .seq = resend_,
           .count = read != nullptr ? static_cast<uint32_t>(
                                          MissingEnd(resend_, *read) - resend_)
                                    : 1,
           .out_of_turn = true};
  return Next::kPacket;
}

Requester::Next Requester::DecideReplay(Item* item) const {
  const SendWqe& wqe = queue_.at(snd_nxt_index_);
  *item = {.index = snd_nxt_index_, .seq = snd_nxt_};
  // The first packet of a replay does not wait for the window: others that
  // share the path could keep it full for ever.
  const bool always = !outstanding();
  if (wqe.operation().kind == SendKind::kRead) {
    const OutstandingReads::Entry* read = reads_.Find(snd_nxt_);
    assert(read != nullptr);
    const uint64_t count = ReplayEnd(*read) - snd_nxt_;
    if (snd_nxt_ > read->first) {
      item->count = ReadCount(count, always);
      return item->count > 0 ? Next::kPacket : Next::kWindow;
    }
    // It may be new to the peer, whose later answers then depend on where it
    // ends: it ends where it did.
    item->count = static_cast<uint32_t>(count);
  }
  return always || WindowAllows(ReplayCost()) ? Next::kPacket : Next::kWindow;
}

Requester::Next Requester::DecideNew(Item* item) const {
  const bool begins = snd_nxt_index_ == begun_;
  const SendWqe& wqe = queue_.at(snd_nxt_index_);
  const SendOperation& operation = wqe.operation();
  *item = {.index = snd_nxt_index_, .seq = snd_max_, .begins = begins};
  if (operation.takes_rd_atomic() && reads_.capacity() == 0) {
    return Next::kPacket;
  }
  if (operation.kind == SendKind::kRead) {
    const uint64_t packets =
        begins ? std::max<uint64_t>(1, (uint64_t{wqe.length} + mtu_ - 1) / mtu_)
               : wqe.end() - snd_max_;
    item->count = ReadCount(packets, false);
    return item->count > 0 ? Next::kPacket : Next::kWindow;
  }
  return WindowAllows(NewCost()) ? Next::kPacket : Next::kWindow;
}

// A message beyond the limit may be tried by its first packet when nothing
// else is outstanding; acknowledged, it has its receive.
bool Requester::HasCreditFor(const SendWqe& wqe, bool begins) const {
  if (!credit_limited_) return true;
  const uint32_t number = begins ? messages_ + 1 : wqe.message;
  if (wire::PsnDiff(number, credit_limit_) <= 0) return true;
  if (begins || snd_max_ == wqe.first) return snd_una_ == snd_max_;
  return snd_una_ > wqe.first;
}

Interests Requester::Transmit(Time now, const TransmitTurn& turn,
                              Burst* burst) {
  if (flight_ == 0) BeginFlight();
  Item item;
  Next next = Decide(now, &item);
  Packetizer packetizer(core_, burst);
  while (next == Next::kPacket) {
    switch (Send(now, turn, &item, &next, burst, &packetizer)) {
      case SendResult::kSent:
        break;
      case SendResult::kNoRoom:
        return InterestsWith(true);
      case SendResult::kFailed:
        RunLocalWork(now);
        next = Decide(now, &item);
        break;
    }
  }
  // READ requests are short, however much of the window they take: who waits
  // with one has had its turn.
  const bool waits = next == Next::kWindow;
  if (waits && queue_.at(item.index).operation().kind == SendKind::kRead) {
    end_turn_ = true;
  }
  Interests want = InterestsWith(next != Next::kNothing);
  if (waits) want.wants |= Interests::kWindow;
  return want;
}

void Requester::Begin(uint64_t index) {
  assert(index == begun_ && snd_nxt_ == snd_max_);
  SendWqe& wqe = queue_.at(index);
  wqe.first = snd_max_;
  wqe.packets = std::max<uint32_t>(
      1, static_cast<uint32_t>((uint64_t{wqe.length} + mtu_ - 1) / mtu_));
  wqe.cost = next_cost_;
  next_cost_ += CostOf(wqe);
  if (wqe.operation().kind == SendKind::kMessage) {
    messages_ = (messages_ + 1) & wire::kPsnMask;
    wqe.message = messages_;
  }
  ++begun_;
}

// An ACK is asked for at least every quarter of the window.
uint64_t Requester::MaxUnaskedBytes() const { return path()->window() / 4; }

uint32_t Requester::CountMiddlePackets(const SendWqe& wqe, const Item& item,
                                       const Packetizer& packetizer) const {
  const bool again = item.out_of_turn || item.seq < snd_max_;
  if (!packetizer.middle() || again || force_ack_req_) return 1;
  const uint64_t asks_at = MaxUnaskedBytes();
  const uint64_t unasked = asks_at > unasked_bytes_
                               ? (asks_at - unasked_bytes_ + mtu_ - 1) / mtu_
                               : 1;
  return static_cast<uint32_t>(std::min(
      {wqe.end() - 1 - item.seq, kMaxOutstanding - (snd_max_ - snd_una_),
       PacketsAllowed(), unasked, uint64_t{packetizer.room()}}));
}

bool Requester::WantAckReq(const SendWqe& wqe, const Item& item,
                           bool more) const {
  if (!more || force_ack_req_) return true;
  if (item.out_of_turn && resend_ == kNone) return true;
  if (wqe.operation().takes_rd_atomic()) return true;  // as hardware does
  if (unasked_bytes_ >= MaxUnaskedBytes()) return true;
  if (item.seq + 1 != wqe.end()) return false;
  if (wqe.packets == 1) return unasked_packets_ >= kMaxUnaskedMessages;
  return queue_.tail() - item.index <= kManyQueued;
}

void Requester::NoteSent(Time now, const Item& item, uint32_t packets,
                         size_t payload) {
  const SendWqe& wqe = queue_.at(item.index);
  const bool again = item.seq < snd_max_;
  if (again) ++core_.counters.retransmitted;
  if (again && HasMissing()) {
    missing_->NoteAsked(item.seq, item.seq + item.count, snd_max_,
                        path()->smoothed_rtt(), now);
  }
  if (item.out_of_turn) {
    if (resend_ == item.seq) ContinueResend(item.seq + item.count);
    OutstandingReads::Entry* read = reads_.Find(item.seq);
    if (read != nullptr) read->replayed = true;
    rtt_seq_ = kNone;
  } else {
    if (again && replay_credit_ > 0) --replay_credit_;
    snd_nxt_ += item.count;
    if (!again) {
      snd_max_ = snd_nxt_;
      if (wqe.operation().takes_rd_atomic()) {
        reads_.Push(item.seq, snd_max_);
        messages_ = (messages_ + 1) & wire::kPsnMask;
      }
    }
    if (snd_nxt_ >= wqe.end()) ++snd_nxt_index_;
    replayed_to_ = std::max(replayed_to_, snd_nxt_);
    SkipAcknowledged();
    SyncFlight();
  }
  if (timeout_base_ == kNever) timeout_base_ = now;
  if (probe_base_ == kNever) probe_base_ = now;
  rnr_until_ = kNever;
  unasked_packets_ += packets;
  unasked_bytes_ += packets * payload;
}

Requester::SendResult Requester::Send(Time now, const TransmitTurn& turn,
                                      Item* item, Next* next, Burst* burst,
                                      Packetizer* packetizer) {
  Item sent = *item;
  SendWqe& wqe = queue_.at(sent.index);
  const SendOperation& operation = wqe.operation();
  if (operation.takes_rd_atomic() && reads_.capacity() == 0) {
    FailLocally(sent.index, WcStatus::kLocalQpOperationError);
    return SendResult::kFailed;
  }
  if (operation.kind == SendKind::kAtomic && wqe.length < kAtomicSize) {
    FailLocally(sent.index, WcStatus::kLocalLengthError);
    return SendResult::kFailed;
  }
  // One that has begun and sent nothing is no different from one that waits.
  if (sent.begins) Begin(sent.index);

  const uint64_t position = sent.seq - wqe.first;
  if (!packetizer->Begin(sent.index, position, sent.count, PsnOf(sent.seq))) {
    return SendResult::kNoRoom;
  }
  MemoryStatus status = MemoryStatus::kOk;
  if (operation.kind == SendKind::kRead) {
    // Nothing is asked for if there is not a place for all of it.
    status = CheckTarget(sent.index, position * mtu_,
                         sent.begins ? wqe.length : packetizer->read_length());
  } else if (operation.response_bytes > 0) {
    status = CheckTarget(sent.index, 0, operation.response_bytes);
  }
  const bool fresh = sent.seq >= snd_max_;
  const uint32_t packets = CountMiddlePackets(wqe, sent, *packetizer);
  if (packets > 1) sent.count = packets;
  if (status == MemoryStatus::kOk) {
    // AckReq is decided after the copy and changes the ICRC: the last packets
    // that are queued have it for sure (WantAckReq), and carry none.
    const bool asks =
        sent.seq + 1 == wqe.end() &&
        queue_.tail() - sent.index <= (wqe.packets > 1 ? kManyQueued : 1);
    status = packetizer->Fill(packets, !asks);
  }
  const size_t payload = packetizer->payload();
  if (status != MemoryStatus::kOk) {
    sent.count = packetizer->filled();
    if (sent.count > 0) NoteSent(now, sent, sent.count, payload);
    FailLocally(sent.index, WcStatus::kLocalProtectionError);
    return SendResult::kFailed;
  }

  NoteSent(now, sent, packets, payload);
  *next = Decide(now, item);
  // A turn ends with a message or a full burst: to cut either costs a send.
  if (*next == Next::kPacket &&
      burst->bytes().size() + packetizer->size() >= turn.bytes &&
      (sent.seq + sent.count == wqe.end() || packetizer->room() < 2)) {
    *next = Next::kTurn;
  }
  if (WantAckReq(wqe, sent, *next == Next::kPacket)) {
    packetizer->SetAckReq();
    unasked_packets_ = 0;
    unasked_bytes_ = 0;
    force_ack_req_ = false;
    if (fresh && rtt_seq_ == kNone) {
      rtt_seq_ = sent.seq + packets - 1;
      rtt_sent_ = now;
    }
  }
  packetizer->Commit();
  return SendResult::kSent;
}

void Requester::FailLocally(uint64_t index, WcStatus status) {
  resend_ = kNone;
  if (index >= failed_index_) return;
  failed_index_ = index;
  failed_status_ = status;
  // What is before it completes first; its last packet may not have asked for
  // an ACK, since more was to follow.
  const uint64_t first = index < begun_ ? queue_.at(index).first : snd_max_;
  if (unasked_packets_ > 0 && snd_una_ < first && snd_nxt_ >= first) {
    ResendOne(first - 1);
  }
}

}  // namespace transport
