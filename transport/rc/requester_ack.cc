// What responses tell a requester (IBA vol. 1, 9.7.5.2): ACKs, NAKs, credits.
#include <algorithm>
#include <optional>

#include "transport/rc/requester.h"

namespace transport {
namespace {

// How a NAK that ends the connection ends its work request; nothing for those
// that do not, and for reserved codes.
std::optional<WcStatus> FatalStatus(wire::NakCode code) {
  switch (code) {
    case wire::NakCode::kInvalidRequest:
    case wire::NakCode::kInvalidRd:
      return WcStatus::kRemoteInvalidRequest;
    case wire::NakCode::kRemoteAccess:
      return WcStatus::kRemoteAccessError;
    case wire::NakCode::kRemoteOperational:
      return WcStatus::kRemoteOperationalError;
    case wire::NakCode::kPsnSequence:
      break;
  }
  return std::nullopt;
}

constexpr uint8_t kRnrRetryForEver = 7;

}  // namespace

bool Requester::Answers(const wire::PacketView& packet) const {
  const int64_t seq = SeqOf(packet.bth().psn);
  return running_ && seq >= static_cast<int64_t>(snd_una_) &&
         seq < static_cast<int64_t>(snd_max_) &&
         (packet.operation() == wire::Operation::kAcknowledge ||
          reads_.Contains(static_cast<uint64_t>(seq)));
}

bool Requester::TakeResponse(const wire::PacketView& packet, Time now) {
  const int64_t seq = SeqOf(packet.bth().psn);
  if (seq >= static_cast<int64_t>(snd_max_)) {  // ghost
    ++core_.counters.dropped_window;
    return false;
  }
  const wire::Operation operation = packet.operation();
  const bool explicit_ack = operation == wire::Operation::kAcknowledge;
  if (seq < static_cast<int64_t>(snd_una_)) {  // stale
    ++core_.counters.stale_responses;
    // The last ACK may come again with more credits.
    if (explicit_ack && seq + 1 == static_cast<int64_t>(snd_una_) && seq >= 0) {
      UpdateCredits(static_cast<uint64_t>(seq), packet.aeth());
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
  if (silences_seen_ != path()->silences()) {
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
      UpdateCredits(seq, aeth);
      Acknowledge(seq + 1, now);
      if (snd_una_ <= seq) {
        NoteMissing(seq + 1, now);
        // Sooner it may be late news.
        if (missing_ != nullptr && !JustHandled(now)) {
          missing_->GiveUpAsked(seq + 1, now);
        }
        if (running_) AskForDue(now);
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
  const std::optional<WcStatus> fatal = FatalStatus(code);
  if (!fatal && code != wire::NakCode::kPsnSequence) return;  // reserved
  ++(fatal ? core_.counters.fatal_naks_received
           : core_.counters.sequence_naks_received);
  Acknowledge(seq, now);
  const bool answered = snd_una_ == seq;
  if (!fatal) {
    answered ? OnSequenceNak(now) : OnGap(now);
  } else if (answered) {
    Fail(*fatal, now);
  } else {
    // Responses of READs before it were lost. The peer may no longer answer:
    // the next probe ends the waiting.
    fatal_seq_ = seq;
    fatal_status_ = *fatal;
    OnGap(now);
  }
}

void Requester::OnRnrNak(uint64_t seq, uint8_t timer, Time now) {
  ++core_.counters.rnr_naks_received;
  const uint64_t before = snd_una_;
  Acknowledge(seq, now);
  if (snd_una_ < seq) {
    OnGap(now);
    return;
  }
  // Not sent again since the last one, which was of the same packet.
  if (!outstanding() && snd_una_ == before) return;
  const uint8_t limit = core_.attributes.rnr_retry;
  if (limit != kRnrRetryForEver && rnr_retries_ >= limit) {
    ++core_.counters.rnr_retries_exceeded;
    Fail(WcStatus::kRnrRetryExceeded, now);
    return;
  }
  if (limit != kRnrRetryForEver) ++rnr_retries_;
  Rewind();
  StopTimers();
  probes_ = 0;
  retries_ = 0;
  rnr_probe_ = true;
  rnr_until_ = now + wire::RnrTimerNanos(timer);
}

void Requester::UpdateCredits(uint64_t seq, const wire::Aeth& aeth) {
  if (wire::AethKindOf(aeth.syndrome) != wire::AethKind::kAck) return;
  if (seq < credit_seq_) return;
  credit_seq_ = seq;
  const uint8_t code = wire::AethValueOf(aeth.syndrome);
  credit_limited_ = code != wire::kCreditNone;
  credit_limit_ = credit_limited_
                      ? (aeth.msn + wire::CreditCount(code)) & wire::kPsnMask
                      : 0;
}

// Something that was not sent again since the NAK and is acknowledged: the peer
// has kept it, or the NAK was of a packet that was overtaken, and what came
// behind that was in order. But not what had overtaken it, nor anything behind
// that: whoever has all of it has kept that much.
void Requester::LearnFromAck(uint64_t until) {
  if (nak_seq_ == kNone) return;
  if (until > nak_seq_ + 1 && until > replayed_to_ && until <= nak_snd_max_ &&
      (!kept_nothing_ || until == nak_snd_max_)) {
    peer_keeps_ = PeerKeeps::kYes;
    kept_nothing_ = false;
  } else if (peer_keeps_ == PeerKeeps::kUnknown && until > nak_seq_ &&
             replayed_to_ < nak_snd_max_) {
    peer_keeps_ = PeerKeeps::kNo;
  }
}

void Requester::Acknowledge(uint64_t until, Time now) {
  LearnFromAck(until);
  acknowledged_ = std::max(acknowledged_, until);
  Proceed(now);
}

void Requester::Proceed(Time now) {
  if (HasMissing() && missing_->first() > snd_una_) {
    AdvanceTo(missing_->first(), now);
  }
  const uint64_t to = reads_.empty()
                          ? acknowledged_
                          : std::min(acknowledged_, reads_.front().first);
  if (to > snd_una_) AdvanceTo(to, now);
  // AdvanceTo has synchronized what it changed.
  const uint64_t sent_to = snd_nxt_;
  SkipAcknowledged();
  if (missing_ != nullptr || snd_nxt_ != sent_to) SyncFlight();
}

void Requester::AdvanceTo(uint64_t to, Time now) {
  if (timed_out_) {
    // Packets that were not sent again have arrived: the peer was slow, nothing
    // was lost. What READs had answered beyond a gap says nothing.
    if (to > snd_nxt_ && !HasMissing()) path()->UndoTimeout();
    timed_out_ = false;
  }
  const uint64_t cost_before = CostBeforeAt(queue_.head(), snd_una_);
  const uint64_t cost_after = CostBefore(queue_.at(IndexOf(to - 1)), to);
  if (probes_ > 0 && !path()->AnsweredSince(timeout_base_)) {
    path()->OnProbesAnswered(probes_);
  }
  probes_ = 0;
  early_probes_ = 0;
  retries_ = 0;
  rnr_retries_ = 0;
  kept_ = 0;
  replay_credit_ = static_cast<uint16_t>(
      std::min<uint64_t>(replay_credit_ + kReplayCreditPerPsn * (to - snd_una_),
                         kMostReplayCredit));
  rnr_until_ = kNever;
  rnr_probe_ = false;
  acknowledged_ = std::max(acknowledged_, to);
  while (!reads_.empty() && reads_.front().end <= to) reads_.PopFront();
  while (queue_.head() < begun_) {
    const uint64_t head = queue_.head();
    const SendWqe& wqe = queue_.at(head);
    if (wqe.end() > to) break;
    if (head == failed_index_) failed_index_ = kNone;  // it had arrived before
    snd_una_ = wqe.end();
    if (snd_nxt_index_ <= head) {
      snd_nxt_ = snd_una_;
      snd_nxt_index_ = head + 1;
    }
    core_.CompleteSend(WcStatus::kSuccess, now);
  }
  snd_una_ = to;
  if (snd_nxt_ < snd_una_) snd_nxt_ = snd_una_;  // in the oldest work request
  if (resend_ != kNone && resend_ < snd_una_) ContinueResend(snd_una_);
  if (fatal_seq_ != kNone && fatal_seq_ < snd_una_) fatal_seq_ = kNone;
  timeout_base_ = outstanding() ? now : kNever;
  probe_base_ = timeout_base_;
  if (rtt_seq_ != kNone && snd_una_ > rtt_seq_) {
    path()->OnRttSample(now - rtt_sent_, now);
    rtt_seq_ = kNone;
  }
  SyncFlight();
  path()->OnAcknowledged(cost_after - cost_before, now);
}

}  // namespace transport
