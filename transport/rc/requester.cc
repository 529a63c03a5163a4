#include "transport/rc/requester.h"

#include <cassert>

namespace transport {

void Requester::Start(Time now) {
  mtu_ = core_.attributes.path_mtu;
  initial_psn_ = core_.attributes.sq_psn;
  reads_.Allocate(core_.attributes.max_rd_atomic);
  running_ = true;
  RunLocalWork(now);
}

void Requester::Stop() {
  if (flight_ > 0) {
    standing_ == Standing::kUnanswered ? path()->OnGoneUnanswered(flight_)
                                       : path()->OnGone(flight_);
    flight_ = 0;
  }
  standing_ = Standing::kUnanswered;
  silences_seen_ = 0;
  past_window_ = end_turn_ = false;
  running_ = draining_ = drain_reported_ = false;
  peer_keeps_ = PeerKeeps::kUnknown;
  gap_alone_ = kept_nothing_ = false;
  force_ack_req_ = rnr_probe_ = timed_out_ = false;
  begun_ = snd_nxt_index_ = queue_.head();
  snd_una_ = snd_nxt_ = snd_max_ = acknowledged_ = next_cost_ = 0;
  resend_ = resend_end_ = failed_index_ = fatal_seq_ = kNone;
  nak_seq_ = gap_seq_ = rtt_seq_ = kNone;
  resend_run_ = 1;
  lost_until_ = 0;
  nak_snd_max_ = replayed_to_ = credit_seq_ = 0;
  replay_credit_ = kMostReplayCredit;
  messages_ = credit_limit_ = 0;
  credit_limited_ = false;
  unasked_packets_ = 0;
  unasked_bytes_ = 0;
  reads_.Clear();
  missing_.reset();
  StopTimers();
  rnr_until_ = kNever;
  probes_ = 0;
  early_probes_ = retries_ = rnr_retries_ = 0;
  kept_ = 0;
}

void Requester::Drain(Time now) {
  draining_ = true;
  drain_reported_ = false;
  RunLocalWork(now);
}

void Requester::Resume(Time now) {
  draining_ = false;
  if (reads_.empty()) reads_.Allocate(core_.attributes.max_rd_atomic);
  RunLocalWork(now);
}

bool Requester::OnResponse(const wire::PacketView& packet, Time now) {
  if (!running_) return false;
  busy_ = true;
  const bool answers = TakeResponse(packet, now);
  busy_ = false;
  RunLocalWork(now);
  return answers;
}

void Requester::OnTimer(Time now) {
  if (!running_) return;
  busy_ = true;
  RunTimers(now);
  busy_ = false;
  RunLocalWork(now);
}

void Requester::Fail(WcStatus status, Time now) {
  running_ = false;
  core_.CompleteSend(status, now);
  core_.Fail();
}

void Requester::RunLocalWork(Time now) {
  if (busy_) return;
  busy_ = true;
  RunLocalWorkOnce(now);
  busy_ = false;
}

void Requester::RunLocalWorkOnce(Time now) {
  while (running_) {
    if (core_.send_cq_lost) {
      running_ = false;
      core_.Fail();
      return;
    }
    const uint64_t head = queue_.head();
    if (fatal_seq_ != kNone && snd_una_ == fatal_seq_) {
      Fail(fatal_status_, now);
      return;
    }
    if (failed_index_ == head) {
      Fail(failed_status_, now);
      return;
    }
    if (draining_ || queue_.empty()) break;
    const SendWqe& wqe = queue_.at(head);
    if (wqe.operation().kind != SendKind::kLocal) break;
    // It has waited to be the oldest, and nothing after it has begun.
    assert(head == begun_);
    if (core_.ExecuteLocal(wqe) != MemoryStatus::kOk) {
      Fail(WcStatus::kMwBindError, now);
      return;
    }
    begun_ = snd_nxt_index_ = head + 1;
    core_.CompleteSend(WcStatus::kSuccess, now);
  }
  if (running_ && drained() && !drain_reported_) {
    drain_reported_ = true;
    core_.NoteDrained();
  }
}

}  // namespace transport
