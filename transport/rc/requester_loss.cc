// Gaps that the peer reports, and what is retransmitted for them (IBA vol. 1,
// 9.7.5.1.3; docs/design/loss-and-congestion.md).
#include <algorithm>

#include "transport/rc/requester.h"

namespace transport {

void Requester::SkipAtNext() {
  while (snd_.nxt < snd_.max && snd_.nxt < snd_.acknowledged) {
    const SendWqe& wqe = queue().at(snd_.nxt_index);
    uint64_t next = snd_.acknowledged;
    if (wqe.operation().takes_rd_atomic()) {
      if (!HasMissing()) return;
      next = missing_->NextMissing(snd_.nxt);
      if (next == snd_.nxt) return;
    }
    snd_.nxt = std::min(next, wqe.end());
    if (snd_.nxt == wqe.end()) ++snd_.nxt_index;
  }
}

void Requester::Rewind() {
  snd_.nxt = snd_.una;
  snd_.nxt_index = queue().head();
  reads_.MarkReplayed();
  plan_.OnRewind();
  acks_.OnRewind();
  peer_.buffered_bytes = 0;
  rtt_.seq = kNoSequence;
  SyncFlight();
  hints_.past_window = true;
}

void Requester::NoteLoss(Time now) {
  if (loss_.IsNewFlight(snd_.una, snd_.max)) path()->OnLoss(now);
}

bool Requester::CountRetry(Reason reason, Time now) {
  if (retries_.Spend(core_.attributes.retry_cnt)) return true;
  core_.Note(RareEventKind::kRetriesExceeded, now, snd_.PsnOf(snd_.una),
             core_.attributes.retry_cnt);
  Fail(failures_.nak_seq != kNoSequence
           ? failures_.nak_result
           : WcResult(WcStatus::kRetryExceeded, reason),
       now);
  return false;
}

bool Requester::CountGap(Time now) {
  return !loss_.OnGap(*path(), snd_.una, core_.attributes.timeout != 0, now) ||
         CountRetry(Reason::kGapRepeated, now);
}

void Requester::OnGap(Time now) {
  if (!snd_.outstanding()) return;  // about to be retransmitted
  if (loss_.JustHandled(*path(), now)) return;
  if (!CountGap(now)) return;
  core_.Note(RareEventKind::kRetransmission, now, snd_.PsnOf(snd_.una));
  NoteLoss(now);
  Rewind();
}

void Requester::OnSequenceNak(Time now) {
  if (!snd_.outstanding()) return;
  if (loss_.GapIsKnown(snd_.una) && loss_.JustHandled(*path(), now)) return;
  if (!CountGap(now)) return;
  core_.Note(RareEventKind::kRetransmission, now, snd_.PsnOf(snd_.una));
  NoteLoss(now);
  if (peer_.buffers() && snd_.nxt == snd_.max) {
    CountBuffered();
    ResendGap();
    return;
  }
  peer_.OnNak(snd_.una, snd_.max);
  Rewind();
}

void Requester::ResendGap() {
  const uint32_t run =
      plan_.GrowRun(snd_.una, path()->window() / 2 / snd_.PacketCost());
  path()->OnLost(run * snd_.PacketCost());
  plan_.SendGap(snd_.una, snd_.una + run, snd_.max);
  NoteOutOfTurn();
}

void Requester::ResendOne(uint64_t seq) {
  const OutstandingReads::Entry* read = reads_.Find(seq);
  plan_.ForgetRun();
  plan_.Send(read != nullptr ? FirstMissing(*read) : seq, seq + 1, snd_.max);
  NoteOutOfTurn();
}

void Requester::NoteOutOfTurn() {
  rtt_.seq = kNoSequence;
  hints_.past_window = true;
}

void Requester::ContinueResend(uint64_t next) {
  plan_.ContinueAt(next, reads_.Find(next) != nullptr);
}

}  // namespace transport
