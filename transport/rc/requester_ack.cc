// What a requester does on ACKs and NAKs (IBA vol. 1, 9.7.5.2).
#include <algorithm>
#include <optional>

#include "transport/rc/requester.h"

namespace transport {
namespace {

// How a work request ends after a NAK that ends the connection; nothing for
// other NAKs and for reserved codes.
std::optional<WcResult> FatalResult(wire::NakCode code) {
  switch (code) {
    case wire::NakCode::kInvalidRequest:
    case wire::NakCode::kInvalidRd:
      return WcResult(WcStatus::kRemoteInvalidRequest,
                      Reason::kNakInvalidRequest);
    case wire::NakCode::kRemoteAccess:
      return WcResult(WcStatus::kRemoteAccessError, Reason::kNakAccess);
    case wire::NakCode::kRemoteOperational:
      return WcResult(WcStatus::kRemoteOperationalError,
                      Reason::kNakOperational);
    case wire::NakCode::kPsnSequence:
      break;
  }
  return std::nullopt;
}

}  // namespace

bool Requester::Answers(const wire::PacketView& packet) const {
  const int64_t seq = snd_.SeqOf(packet.psn());
  return phase_.running && seq >= static_cast<int64_t>(snd_.una) &&
         seq < static_cast<int64_t>(snd_.max) &&
         (packet.operation() == wire::Operation::kAcknowledge ||
          reads_.Contains(static_cast<uint64_t>(seq)));
}

bool Requester::TakeResponse(const wire::PacketView& packet, Time now) {
  const int64_t seq = snd_.SeqOf(packet.psn());
  if (seq >= static_cast<int64_t>(snd_.max)) {  // ghost
    ++core_.counters.dropped_window;
    return false;
  }
  const wire::Operation operation = packet.operation();
  const bool explicit_ack = operation == wire::Operation::kAcknowledge;
  if (seq < static_cast<int64_t>(snd_.una)) {  // stale
    ++core_.counters.stale_responses;
    // The last ACK may be retransmitted with more credits.
    if (explicit_ack && seq + 1 == static_cast<int64_t>(snd_.una) && seq >= 0) {
      credits_.OnAeth(static_cast<uint64_t>(seq), packet.aeth());
    }
    if (!explicit_ack && seq >= 0 && missing_ != nullptr) {
      missing_->NoteCopy(static_cast<uint64_t>(seq), path()->smoothed_rtt(),
                         now);
    }
    return false;
  }
  const auto known = static_cast<uint64_t>(seq);
  // No READ or atomic is outstanding there.
  if (!explicit_ack && !reads_.Contains(known)) {
    ++core_.counters.dropped_response;
    return false;
  }
  if (!flight_.IsCurrent(*path())) {
    NoteAnswer(!explicit_ack || wire::AethKindOf(packet.aeth().syndrome) ==
                                    wire::AethKind::kAck);
  }
  if (explicit_ack) {
    OnAcknowledge(known, packet.aeth(), now);
  } else {
    OnAnswer(known, packet, now);
  }
  return true;
}

void Requester::OnAcknowledge(uint64_t seq, const wire::Aeth& aeth, Time now) {
  const uint8_t value = wire::AethValueOf(aeth.syndrome);
  switch (wire::AethKindOf(aeth.syndrome)) {
    case wire::AethKind::kAck:
      credits_.OnAeth(seq, aeth);
      Acknowledge(seq + 1, now);
      if (snd_.una <= seq) {
        NoteMissing(seq + 1, now);
        // Within a round trip the answer may be older than the request.
        if (missing_ != nullptr && !loss_.JustHandled(*path(), now)) {
          missing_->GiveUpAsked(seq + 1, now);
        }
        if (phase_.running) AskForDue(now);
      }
      break;
    case wire::AethKind::kRnrNak:
      OnRnrNak(seq, value, now);
      break;
    case wire::AethKind::kNak:
      OnNak(seq, wire::NakCodeOf(aeth.syndrome), now);
      break;
    case wire::AethKind::kReserved:
      break;
  }
}

void Requester::OnNak(uint64_t seq, wire::NakCode code, Time now) {
  const std::optional<WcResult> fatal = FatalResult(code);
  if (!fatal && code != wire::NakCode::kPsnSequence) return;  // reserved
  core_.Note(fatal ? RareEventKind::kFatalNakReceived
                   : RareEventKind::kSequenceNakReceived,
             now, snd_.PsnOf(seq), static_cast<uint32_t>(code));
  Acknowledge(seq, now);
  const bool answered = snd_.una == seq;
  if (!fatal) {
    answered ? OnSequenceNak(now) : OnGap(now);
  } else if (answered) {
    Fail(*fatal, now);
  } else {
    // Responses to READs before it were lost. The peer may no longer answer:
    // the next probe ends the wait
    // (RequesterNakTest.FatalNakBeyondAReadThatWasNotAnswered).
    failures_.nak_seq = seq;
    failures_.nak_result = *fatal;
    OnGap(now);
  }
}

void Requester::OnRnrNak(uint64_t seq, uint8_t timer, Time now) {
  core_.Note(RareEventKind::kRnrNakReceived, now, snd_.PsnOf(seq), timer);
  const uint64_t before = snd_.una;
  Acknowledge(seq, now);
  if (snd_.una < seq) {
    OnGap(now);
    return;
  }
  // A duplicate: nothing was sent since the last RNR NAK, which was for the
  // same packet.
  if (!snd_.outstanding() && snd_.una == before) return;
  if (!retries_.SpendRnr(core_.attributes.rnr_retry)) {
    core_.Note(RareEventKind::kRnrRetriesExceeded, now, snd_.PsnOf(seq),
               core_.attributes.rnr_retry);
    Fail({WcStatus::kRnrRetryExceeded, Reason::kRnrRetriesExceeded}, now);
    return;
  }
  Rewind();
  loss_.OnNotReady();
  retries_.ForgiveTimeouts();
  plan_.one_at_a_time = true;
  rnr_until_ = now + wire::RnrTimerNanos(timer);
}

void Requester::Acknowledge(uint64_t until, Time now) {
  peer_.OnAcknowledged(until);
  snd_.acknowledged = std::max(snd_.acknowledged, until);
  Proceed(now);
}

void Requester::Proceed(Time now) {
  if (HasMissing() && missing_->first() > snd_.una) {
    AdvanceTo(missing_->first(), now);
  }
  const uint64_t to = reads_.empty()
                          ? snd_.acknowledged
                          : std::min(snd_.acknowledged, reads_.front().first);
  if (to > snd_.una) AdvanceTo(to, now);
  // AdvanceTo has synchronized what it changed.
  const uint64_t sent_to = snd_.nxt;
  SkipAcknowledged();
  if (missing_ != nullptr || snd_.nxt != sent_to) SyncFlight();
}

void Requester::AdvanceTo(uint64_t to, Time now) {
  if (loss_.timed_out) {
    // Packets that were not retransmitted have arrived: the peer was slow, and
    // nothing was lost. Responses beyond a gap do not show that.
    if (to > snd_.nxt && !HasMissing()) path()->UndoTimeout();
    loss_.timed_out = false;
  }
  const uint64_t cost_before = snd_.una_cost;
  const uint64_t cost_after = snd_.CostBefore(queue().at(IndexOf(to - 1)), to);
  snd_.una_cost = cost_after;
  if (loss_.probes() > 0 && !path()->AnsweredSince(loss_.since())) {
    path()->OnProbesAnswered(loss_.probes());
  }
  loss_.ForgetProbes();
  retries_ = {};
  peer_.buffered_bytes = 0;
  plan_.OnProgress(to - snd_.una);
  rnr_until_ = kNever;
  snd_.acknowledged = std::max(snd_.acknowledged, to);
  while (!reads_.empty() && reads_.front().end <= to) reads_.PopFront();
  while (queue().head() < snd_.begun) {
    const uint64_t head = queue().head();
    const SendWqe& wqe = queue().at(head);
    if (wqe.end() > to) break;
    // The peer has executed it: its failure here no longer counts.
    if (head == failures_.local_index) {
      failures_.local_index = kNoSequence;
      failures_.local_result = {};
    }
    snd_.una = wqe.end();
    if (snd_.nxt_index <= head) {
      snd_.nxt = snd_.una;
      snd_.nxt_index = head + 1;
    }
    if (core_.config.stops_at_data_errors && core_.HasDataError(head)) {
      phase_.data_error = true;
    }
    core_.CompleteSend({}, now);
  }
  snd_.una = to;
  if (snd_.nxt < snd_.una) snd_.nxt = snd_.una;  // in the oldest work request
  if (plan_.out_of_turn() && plan_.next() < snd_.una) ContinueResend(snd_.una);
  if (failures_.nak_seq != kNoSequence && failures_.nak_seq < snd_.una) {
    failures_.nak_seq = kNoSequence;
  }
  snd_.outstanding() ? loss_.RestartTimers(now) : loss_.StopTimers();
  if (rtt_.seq != kNoSequence && snd_.una > rtt_.seq) {
    path()->OnOrderedAnswer(core_.attributes.dest_qpn, rtt_.sent, now);
    rtt_.seq = kNoSequence;
  }
  SyncFlight();
  path()->OnAcknowledged(cost_after - cost_before, now);
}

}  // namespace transport
