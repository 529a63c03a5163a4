// A turn of a requester to transmit: packets go into the burst, and are noted
// as sent.
#include <algorithm>
#include <cassert>

#include "transport/rc/requester.h"

namespace transport {

Interests Requester::Transmit(Time now, const TransmitTurn& turn,
                              Burst* burst) {
  if (flight_.bytes() == 0) BeginFlight();
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
  // READ requests are short however much of the window they take, so a queue
  // pair that has to wait with one ends its turn.
  const bool waits = next == Next::kWindow;
  if (waits && queue().at(item.index).operation().kind == SendKind::kRead) {
    hints_.end_turn = true;
  }
  Interests want = InterestsWith(next != Next::kNothing);
  if (waits) want.wants |= Interests::kWindow;
  return want;
}

inline void Requester::Begin(SendWqe* wqe) {
  assert(wqe == &queue().at(snd_.begun) && snd_.nxt == snd_.max);
  snd_.Begin(wqe);
  if (wqe->operation().kind == SendKind::kMessage) {
    wqe->message = credits_.Count();
  }
}

uint32_t Requester::CountMiddlePackets(const SendWqe& wqe, const Item& item,
                                       const Packetizer& packetizer) const {
  const bool again = item.out_of_turn || item.seq < snd_.max;
  if (again || acks_.forced()) return 1;
  return static_cast<uint32_t>(std::min(
      {wqe.end() - 1 - item.seq, kMaxOutstanding - (snd_.max - snd_.una),
       PacketsAllowed(), acks_.PacketsUntilAsked(*path(), snd_.mtu),
       uint64_t{packetizer.room()}}));
}

bool Requester::WantAckReq(const SendWqe& wqe, const Item& item,
                           bool more) const {
  if (!more || acks_.forced()) return true;
  if (item.out_of_turn && !plan_.out_of_turn()) return true;  // it ends the run
  if (wqe.operation().takes_rd_atomic()) return true;  // as hardware does
  if (acks_.BytesAskNow(*path())) return true;
  return item.seq + 1 == wqe.end() &&
         acks_.LastOfMessageAsks(wqe.packets, queue().tail() - item.index);
}

inline void Requester::NoteSent(Time now, const SendWqe& wqe, const Item& item,
                                uint32_t packets, size_t payload) {
  const bool again = item.seq < snd_.max;
  if (again) ++core_.counters.retransmitted;
  if (again && HasMissing()) {
    missing_->NoteAsked(item.seq, item.seq + item.count, snd_.max,
                        path()->smoothed_rtt(), now);
  }
  if (item.out_of_turn) {
    if (plan_.next() == item.seq) ContinueResend(item.seq + item.count);
    OutstandingReads::Entry* read = reads_.Find(item.seq);
    if (read != nullptr) read->replayed = true;
    rtt_.seq = kNoSequence;
  } else {
    if (again) plan_.TakeCredit();
    snd_.nxt += item.count;
    if (!again) {
      snd_.max = snd_.nxt;
      if (wqe.operation().takes_rd_atomic()) {
        reads_.Push(item.seq, snd_.max);
        credits_.Count();
      }
    }
    if (snd_.nxt >= wqe.end()) ++snd_.nxt_index;
    peer_.OnSent(snd_.nxt);
    SkipAcknowledged();
    SyncFlight();
  }
  loss_.OnSent(now);
  rnr_until_ = kNever;
  acks_.OnSent(packets, packets * payload);
}

Requester::SendResult Requester::Send(Time now, const TransmitTurn& turn,
                                      Item* item, Next* next, Burst* burst,
                                      Packetizer* packetizer) {
  Item sent = *item;
  SendWqe& wqe = queue().at(sent.index);
  const SendOperation& operation = wqe.operation();
  if (operation.takes_rd_atomic() && reads_.capacity() == 0) {
    FailLocally(sent.index,
                {WcStatus::kLocalQpOperationError, Reason::kNoReadsAllowed});
    return SendResult::kFailed;
  }
  if (operation.kind == SendKind::kAtomic && wqe.length < kAtomicSize) {
    FailLocally(sent.index,
                {WcStatus::kLocalLengthError, Reason::kAtomicTooShort});
    return SendResult::kFailed;
  }
  // A work request that has begun and sent nothing is no different from one
  // that waits, so this is not undone below.
  if (sent.begins) Begin(&wqe);

  const uint64_t position = sent.seq - wqe.first;
  if (!packetizer->Begin(sent.index, position, sent.count,
                         snd_.PsnOf(sent.seq))) {
    return SendResult::kNoRoom;
  }
  MemoryStatus status = MemoryStatus::kOk;
  if (operation.kind == SendKind::kRead) {
    // Nothing is requested unless there is space for all of it.
    status = CheckTarget(sent.index, position * snd_.mtu,
                         sent.begins ? wqe.length : packetizer->read_length());
  } else if (operation.response_bytes > 0) {
    status = CheckTarget(sent.index, 0, operation.response_bytes);
  }
  const bool fresh = sent.seq >= snd_.max;
  const uint32_t packets =
      packetizer->middle() ? CountMiddlePackets(wqe, sent, *packetizer) : 1;
  if (packets > 1) sent.count = packets;
  if (status == MemoryStatus::kOk) {
    // AckReq is decided after the copy and changes the ICRC: for packets that
    // certainly ask it is not computed during the copy.
    const bool asks = sent.seq + 1 == wqe.end() &&
                      AckRequests::LastOfMessageAsksForSure(
                          wqe.packets, queue().tail() - sent.index);
    status = packetizer->Fill(packets, !asks);
  }
  const size_t payload = packetizer->payload();
  if (status != MemoryStatus::kOk) {
    sent.count = packetizer->filled();
    if (sent.count > 0) NoteSent(now, wqe, sent, sent.count, payload);
    FailLocally(sent.index,
                {WcStatus::kLocalProtectionError, LocalReason(status)});
    return SendResult::kFailed;
  }

  NoteSent(now, wqe, sent, packets, payload);
  *next = Decide(now, item);
  // A turn ends with a message or a full burst: cutting either short costs a
  // system call.
  if (*next == Next::kPacket &&
      burst->bytes().size() + packetizer->size() >= turn.bytes &&
      (sent.seq + sent.count == wqe.end() || packetizer->room() < 2)) {
    *next = Next::kTurn;
  }
  if (WantAckReq(wqe, sent, *next == Next::kPacket)) {
    packetizer->SetAckReq();
    acks_.OnAsked();
    if (fresh && rtt_.seq == kNoSequence) {
      rtt_.seq = sent.seq + packets - 1;
      rtt_.sent = now;
    }
  }
  packetizer->Commit();
  return SendResult::kSent;
}

void Requester::FailLocally(uint64_t index, WcResult result) {
  plan_.Cancel();
  if (index >= failures_.local_index) return;
  failures_.local_index = index;
  failures_.local_result = result;
  // Earlier work requests complete first; their last packet may lack AckReq,
  // since more was to follow.
  const uint64_t first =
      index < snd_.begun ? queue().at(index).first : snd_.max;
  if (acks_.any_unasked() && snd_.una < first && snd_.nxt >= first) {
    ResendOne(first - 1);
  }
}

}  // namespace transport
