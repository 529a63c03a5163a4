// The timers of what is outstanding (LossDetector), and what is retransmitted
// when they expire (IBA vol. 1, 9.9.2.1).
#include <algorithm>

#include "transport/rc/requester.h"

namespace transport {

LossDetector::Conditions Requester::TimerConditions() const {
  const Time timeout = wire::AckTimeoutNanos(core_.attributes.timeout);
  return {.una = snd_.una,
          .ack_timeout = snd_.una > 0 ? kAckTimeoutFactor * timeout : timeout,
          .qpn = core_.config.qpn,
          .dest_qpn = core_.attributes.dest_qpn,
          .may_probe_early = !flight_.LimitedToShare() &&
                             failures_.nak_seq == kNoSequence &&
                             !failures_.is_local()};
}

Time Requester::ArmedTimeout() const {
  if (!phase_.running) return kNever;
  if (rnr_until_ != kNever) return rnr_until_;
  const Time deadline = loss_.Deadline(*path(), TimerConditions());
  return missing_ == nullptr ? deadline
                             : std::min(deadline, missing_->NextDeadline());
}

void Requester::RunTimers(Time now) {
  if (rnr_until_ != kNever) {
    if (now >= rnr_until_) rnr_until_ = kNever;
    return;
  }
  if (!snd_.outstanding()) return;
  AskForDue(now);
  if (!phase_.running) return;
  switch (loss_.Judge(*path(), TimerConditions(), now)) {
    case LossDetector::Verdict::kNothing:
      break;
    case LossDetector::Verdict::kAckTimeout:
      OnAckTimeout(now);
      break;
    case LossDetector::Verdict::kProbe:
      OnProbe(now);
      break;
    case LossDetector::Verdict::kEarlyProbe:
      OnEarlyProbe(now);
      break;
  }
}

void Requester::OnSilence(Time now) {
  peer_.OnTimeout();
  plan_.RefillCredit();
  // The rest of the window is for queue pairs whose peers answer.
  hints_.end_turn = true;
  // While others are answered and miss nothing, the silence is this peer's and
  // not the path's.
  if (path()->AnsweredSince(loss_.since()) &&
      !path()->LostSince(loss_.since())) {
    return;
  }
  loss_.timed_out = true;
  path()->OnTimeout(now);
}

void Requester::OnAckTimeout(Time now) {
  core_.Note(RareEventKind::kAckTimeout, now, snd_.PsnOf(snd_.una),
             core_.attributes.retry_cnt);
  const Reason reason = loss_.GapIsKnown(snd_.una) ? Reason::kNoProgress
                        : snd_.una > 0             ? Reason::kPeerSilent
                                                   : Reason::kNeverAnswered;
  if (!CountRetry(reason, now)) return;
  flight_.FallSilent(path());
  OnSilence(now);
  Rewind();
  loss_.StopTimers();  // until it is sent
}

void Requester::OnProbe(Time now) {
  core_.Note(RareEventKind::kProbe, now, snd_.PsnOf(snd_.una));
  loss_.OnProbe(now);
  if (failures_.nak_seq != kNoSequence) {
    Fail(failures_.nak_result, now);
    return;
  }
  flight_.FallSilent(path());
  const bool waits_for_answer =
      queue().at(queue().head()).operation().takes_rd_atomic();
  if (loss_.probes() > 1) OnSilence(now);
  const bool filled_gap_alone = plan_.FilledGapAlone(snd_.una);
  if (filled_gap_alone) peer_.OnGapFilledAlone();
  if (loss_.probes() > 1 || filled_gap_alone || waits_for_answer ||
      failures_.is_local()) {
    Rewind();
    return;
  }
  ResendProbe();
}

void Requester::OnEarlyProbe(Time now) {
  core_.Note(RareEventKind::kProbe, now, snd_.PsnOf(snd_.una));
  loss_.OnEarlyProbe(snd_.una, now);
  ResendProbe();
}

// A peer that has reported a gap is silent until that is filled. Otherwise the
// answer to the last packet tells whether that or its ACK was lost.
void Requester::ResendProbe() {
  const bool known = loss_.GapIsKnown(snd_.una) || HasMissing();
  ResendOne(known ? snd_.una : snd_.nxt - 1);
}

}  // namespace transport
