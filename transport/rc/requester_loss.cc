// Loss: replay after NAKs, gaps and timeouts, and the timers (IBA vol. 1,
// 9.7.5.1.3 and 9.9; docs/design/loss-and-congestion.md).
//
// Three timers watch what is outstanding. The *probe*, some round trips after
// the last progress, sends the last packet again: whether that or its ACK was
// lost, the peer's answer tells; or the first, if it is known to be missing. A
// second one in a row, and every further one, replays from snd_una. Probes back
// off and cost no retry. On a path that loses packets they are preceded by
// *early probes*, of what is known to be missing or of the last packet: what
// was sent again may be lost again, and so may be the NAK. The *local ACK
// timeout* of the queue pair (times kAckTimeoutFactor, if the peer has ever
// answered) counts from the last progress, replays, and ends the connection
// when it has come retry_cnt + 1 times.
//
// A gap that the peer reports again, though what is missing was sent again, is
// no progress: that timeout goes on. Where there is none, each report costs a
// retry itself, but for the first: loss is normal here, also for programs that
// ask for no retries.
//
// What replays send again is bounded by what is acknowledged, or else each of
// many NAKs, of PSNs one behind the other, would have all that is outstanding
// sent: it takes credit (kReplayCreditPerPsn). Without any a replay is a few
// packets and waits for an answer. A peer that goes back N, and loses one
// packet in twenty, has each packet sent again once in the mean.
#include <algorithm>

#include "transport/endpoint/packet_arena.h"
#include "transport/rc/requester.h"

namespace transport {
namespace {

// Between probes of a queue pair that has no ACK timeout.
constexpr Time kLongestProbe = kSecond;
constexpr uint8_t kMaxBackoff = 16;  // doublings
// In a row, before which intervals are the same for all queue pairs.
constexpr uint8_t kSpreadProbes = 3;
// Before the first probe.
constexpr int kMostEarlyProbes = 2;
// Added to what leaves the network in a round trip, one part in so many: as it
// is measured, it is rather too little.
constexpr uint64_t kRoundTripMargin = 8;
// Headers, pad and ICRC of a request with payload.
constexpr size_t kMostPacketOverhead = 128;
// Reports that come within this time are of one loss: a round trip that is
// measured to be shorter is that of acknowledgements made up.
constexpr Time kLeastReaction = 20 * kMicrosecond;
// After so many NAKs a peer that kept nothing is tried again.
constexpr int kTriedAgain = 8;

}  // namespace

void Requester::SkipAcknowledged() {
  while (snd_nxt_ < snd_max_ && snd_nxt_ < acknowledged_) {
    const SendWqe& wqe = queue_.at(snd_nxt_index_);
    uint64_t next = acknowledged_;
    if (wqe.operation().takes_rd_atomic()) {
      if (!HasMissing()) return;
      next = missing_->NextMissing(snd_nxt_);
      if (next == snd_nxt_) return;
    }
    snd_nxt_ = std::min(next, wqe.end());
    if (snd_nxt_ == wqe.end()) ++snd_nxt_index_;
  }
}

void Requester::StopTimers() {
  timeout_base_ = kNever;
  probe_base_ = kNever;
}

void Requester::Rewind() {
  snd_nxt_ = snd_una_;
  snd_nxt_index_ = queue_.head();
  reads_.MarkReplayed();
  resend_ = kNone;
  gap_alone_ = false;
  kept_ = 0;
  rtt_seq_ = kNone;
  force_ack_req_ = true;
  unasked_packets_ = 0;
  unasked_bytes_ = 0;
  SyncFlight();
  past_window_ = true;
}

void Requester::NoteLoss(Time now) {
  if (snd_una_ < lost_until_) return;
  lost_until_ = snd_max_;
  path()->OnLoss(now);
}

// Nothing tells how much of what was sent after a gap has arrived, but while it
// is being filled, which takes a round trip, that much leaves the network, and
// as much may be sent: more would stand in a queue before what fills the next
// gap, less would leave the network idle. The peer keeps it, if it has room.
void Requester::SetKept() {
  kept_ = 0;
  SyncFlight();
  const uint64_t in_flight = std::max<uint64_t>(path()->in_flight(), 1);
  const uint64_t round_trip = path()->round_trip_bytes() * flight_ / in_flight;
  const uint64_t keeps =
      std::min(PacketArena::kBytes / (mtu_ + kMostPacketOverhead),
               PacketArena::kMaxPackets);
  const uint64_t kept = snd_nxt_ - snd_una_;
  const uint64_t more =
      std::min(round_trip + round_trip / kRoundTripMargin,
               keeps > kept ? (keeps - kept) * PacketCost() : 0);
  const uint64_t limit = path()->window() - std::min(path()->window(), more);
  if (in_flight > limit) kept_ = static_cast<uint32_t>(in_flight - limit);
  SyncFlight();
}

// What gets lost mostly is a packet batch, or several.
void Requester::ResendGap() {
  constexpr uint32_t kGrowth = 4;
  const uint64_t limit = path()->window() / 2 / PacketCost();
  resend_run_ = snd_una_ == resend_end_ ? resend_run_ * kGrowth : 1;
  resend_run_ = std::min<uint64_t>(resend_run_, std::max<uint64_t>(limit, 1));
  path()->OnLost(resend_run_ * PacketCost());
  Resend(snd_una_, snd_una_ + resend_run_);
  gap_alone_ = resend_end_ < snd_max_;
}

void Requester::Resend(uint64_t first, uint64_t end) {
  resend_ = first;
  resend_end_ = std::min(end, snd_max_);
  gap_alone_ = false;
  rtt_seq_ = kNone;
  past_window_ = true;
}

void Requester::ResendOne(uint64_t seq) {
  const OutstandingReads::Entry* read = reads_.Find(seq);
  resend_run_ = 1;
  Resend(read != nullptr ? FirstMissing(*read) : seq, seq + 1);
}

// A READ or an atomic ends a run: the peer, which keeps it, would answer twice.
void Requester::ContinueResend(uint64_t next) {
  resend_ = next < resend_end_ && reads_.Find(next) == nullptr ? next : kNone;
}

// One reaction per loss and round trip: everything that was on its way when the
// first signal came tells the same.
bool Requester::JustHandled(Time now) const {
  if (gap_seq_ == kNone) return false;
  const Time rtt = path()->smoothed_rtt();
  return now - gap_time_ <
         (rtt != 0 ? std::max(rtt, kLeastReaction) : path()->ProbeTimeout());
}

void Requester::OnGap(Time now) {
  if (!outstanding()) return;  // about to be sent again
  if (JustHandled(now)) return;
  if (!CountGap(now)) return;
  NoteLoss(now);
  Rewind();
}

void Requester::OnSequenceNak(Time now) {
  if (!outstanding()) return;
  if (gap_seq_ == snd_una_ && JustHandled(now)) return;
  if (!CountGap(now)) return;
  NoteLoss(now);
  if (peer_keeps_ == PeerKeeps::kYes && snd_nxt_ == snd_max_) {
    SetKept();
    ResendGap();
    return;
  }
  // It may have missed two in a row.
  if (peer_keeps_ == PeerKeeps::kNo && ++naks_as_no_ % kTriedAgain == 0) {
    peer_keeps_ = PeerKeeps::kUnknown;
  }
  if (nak_seq_ == kNone || snd_una_ > nak_seq_) {
    nak_seq_ = snd_una_;
    nak_snd_max_ = snd_max_;
    replayed_to_ = snd_una_;
  }
  Rewind();
}

void Requester::OnRetransmitTimeout(Time now) {
  peer_keeps_ = PeerKeeps::kUnknown;
  replay_credit_ = kMostReplayCredit;
  // What the window has left is for those whose peers answer.
  end_turn_ = true;
  // While others are answered and miss nothing, the silence is this peer's and
  // not the path's.
  if (path()->AnsweredSince(timeout_base_) &&
      !path()->LostSince(timeout_base_)) {
    return;
  }
  timed_out_ = true;
  path()->OnTimeout(now);
}

bool Requester::CountRetry(Time now) {
  if (retries_ >= core_.attributes.retry_cnt) {
    ++core_.counters.retries_exceeded;
    Fail(fatal_seq_ != kNone ? fatal_status_ : WcStatus::kRetryExceeded, now);
    return false;
  }
  ++retries_;
  return true;
}

// Reports come a round trip apart: they would use up in milliseconds what is to
// last for retry_cnt timeouts, as when the MTU of the path shrinks for a moment
// and only what is short arrives. A long answer that has lost its beginning
// shows the gap again and again, too, while what was asked for again is still
// behind it: one probe's time apart they are not of one answer.
bool Requester::CountGap(Time now) {
  const bool again = gap_seq_ == snd_una_;
  gap_seq_ = snd_una_;
  gap_time_ = now;
  if (again && (core_.attributes.timeout != 0 ||
                now - gap_counted_ < path()->ProbeTimeout())) {
    return true;
  }
  gap_counted_ = now;
  return !again || CountRetry(now);
}

void Requester::OnAckTimeout(Time now) {
  ++core_.counters.timeouts;
  if (!CountRetry(now)) return;
  FallSilent();
  OnRetransmitTimeout(now);
  Rewind();
  StopTimers();  // until it is sent
}

void Requester::OnProbe(Time now) {
  ++core_.counters.probes;
  if (probes_ < kMaxBackoff) ++probes_;
  probe_base_ = now;
  if (fatal_seq_ != kNone) {
    Fail(fatal_status_, now);
    return;
  }
  FallSilent();
  const bool waits_for_answer =
      queue_.at(queue_.head()).operation().takes_rd_atomic();
  if (probes_ > 1) OnRetransmitTimeout(now);
  // The peer took what was sent again, and is silent about what was behind it.
  const bool has_the_gap_alone = gap_alone_ && snd_una_ == resend_end_;
  if (has_the_gap_alone) {
    peer_keeps_ = PeerKeeps::kNo;
    kept_nothing_ = true;
  }
  if (probes_ > 1 || has_the_gap_alone || waits_for_answer ||
      failed_index_ != kNone) {
    Rewind();
    return;
  }
  ResendProbe();
}

void Requester::OnEarlyProbe(Time now) {
  ++core_.counters.probes;
  ++early_probes_;
  if (GapIsKnown()) gap_time_ = now;
  ResendProbe();
}

// A peer that has reported a gap is silent until that is filled.
void Requester::ResendProbe() {
  const bool known = GapIsKnown() || HasMissing();
  ResendOne(known ? snd_una_ : snd_nxt_ - 1);
}

Time Requester::AckDeadline() const {
  const Time timeout = wire::AckTimeoutNanos(core_.attributes.timeout);
  if (timeout == 0 || timeout_base_ == kNever) return kNever;
  return timeout_base_ + (snd_una_ > 0 ? kAckTimeoutFactor * timeout : timeout);
}

// When the interval has grown past the ACK timeout, that comes first and
// replays as well as a probe does.
Time Requester::ProbeDeadline() const {
  if (probe_base_ == kNever) return kNever;
  Time interval = path()->ProbeTimeout() << probes_;
  // Those who fell silent together do not come back together: they would be
  // lost together again.
  if (probes_ >= kSpreadProbes) {
    const uint32_t part = core_.config.qpn * 0x9e3779b1u >> 26;  // of 128
    interval -= interval / 128 * part;
  }
  if (core_.attributes.timeout == 0)
    interval = std::min(interval, kLongestProbe);
  return probe_base_ + interval;
}

Time Requester::EarlyProbeDeadline() const {
  if (early_probes_ >= kMostEarlyProbes || probes_ > 0 ||
      probe_base_ == kNever || LimitedToShare() || fatal_seq_ != kNone ||
      failed_index_ != kNone) {
    return kNever;
  }
  const Time since =
      GapIsKnown() ? std::max(probe_base_, gap_time_) : probe_base_;
  const Time timeout = path()->EarlyProbeTimeout(since);
  return timeout == kNever ? kNever : since + (timeout << early_probes_);
}

Time Requester::ArmedTimeout() const {
  if (!running_) return kNever;
  if (rnr_until_ != kNever) return rnr_until_;
  Time deadline = std::min(AckDeadline(), ProbeDeadline());
  if (missing_ != nullptr) {
    deadline = std::min(deadline, missing_->NextDeadline());
  }
  if (!path()->has_lost()) return deadline;
  return std::min(deadline, EarlyProbeDeadline());
}

void Requester::RunTimers(Time now) {
  if (rnr_until_ != kNever) {
    if (now >= rnr_until_) rnr_until_ = kNever;
    return;
  }
  if (!outstanding()) return;
  AskForDue(now);
  if (!running_) return;
  if (now >= AckDeadline()) {
    OnAckTimeout(now);
  } else if (now >= ProbeDeadline()) {
    OnProbe(now);
  } else if (now >= EarlyProbeDeadline()) {
    OnEarlyProbe(now);
  }
}

}  // namespace transport
