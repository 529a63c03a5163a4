#include "transport/rc/requester.h"

#include <cassert>

namespace transport {

void Requester::Start(Time now) {
  snd_.initial_psn = core_.attributes.sq_psn;
  snd_.mtu = core_.attributes.path_mtu;
  reads_.Allocate(core_.attributes.max_rd_atomic);
  phase_.running = true;
  RunLocalWork(now);
}

void Requester::Stop() {
  Forget();
  reads_.Clear();
  phase_ = {};
}

void Requester::Restart() {
  const uint32_t psn = send_psn();
  Stop();
  snd_.initial_psn = psn;
  reads_.Allocate(core_.attributes.max_rd_atomic);
  phase_.running = true;
}

void Requester::ChangePeer(uint32_t first_psn) {
  assert(snd_.una == snd_.max && reads_.empty());
  Forget();
  snd_.initial_psn = first_psn;
  snd_.mtu = core_.attributes.path_mtu;
}

void Requester::Forget() {
  flight_.Leave(path());
  // Reports now say that nothing is in flight. The event of a failure says what
  // the queue pair waited for.
  snd_ = {.initial_psn = snd_.initial_psn,
          .nxt_index = queue().head(),
          .begun = queue().head()};
  missing_.reset();
  peer_ = {};
  plan_ = {};
  loss_ = {};
  credits_ = {};
  rtt_ = {};
  failures_ = {};
  acks_ = {};
  retries_ = {};
  hints_ = {};
  rnr_until_ = kNever;
}

void Requester::Drain(Time now) {
  phase_.draining = true;
  phase_.drain_reported = false;
  RunLocalWork(now);
}

void Requester::Resume(Time now) {
  phase_.draining = phase_.data_error = false;
  if (reads_.empty()) reads_.Allocate(core_.attributes.max_rd_atomic);
  RunLocalWork(now);
}

bool Requester::OnResponse(const wire::PacketView& packet, Time now) {
  if (!phase_.running) return false;
  busy_ = true;
  const bool answers = TakeResponse(packet, now);
  busy_ = false;
  RunLocalWork(now);
  return answers;
}

void Requester::OnTimer(Time now) {
  if (!phase_.running) return;
  busy_ = true;
  RunTimers(now);
  busy_ = false;
  RunLocalWork(now);
}

void Requester::Fail(WcResult result, Time now) {
  phase_.running = false;
  core_.NoteFirstError(result.reason);
  core_.CompleteSend(result, now);
  core_.Fail(result.reason);
}

void Requester::RunLocalWork(Time now) {
  if (busy_) return;
  busy_ = true;
  RunLocalWorkOnce(now);
  busy_ = false;
}

void Requester::CompleteUnsent(WcResult result, Time now) {
  assert(queue().head() == snd_.begun);
  EndUnsent(result, now);
  RunLocalWork(now);
}

void Requester::EndUnsent(WcResult result, Time now) {
  snd_.begun = snd_.nxt_index = queue().head() + 1;
  core_.CompleteSend(result, now);
}

void Requester::RunLocalWorkOnce(Time now) {
  while (phase_.running) {
    if (core_.send_cq_lost) {
      phase_.running = false;
      core_.Fail(Reason::kCqOverrun);
      return;
    }
    const uint64_t head = queue().head();
    if (failures_.nak_seq != kNoSequence && snd_.una == failures_.nak_seq) {
      Fail(failures_.nak_result, now);
      return;
    }
    if (failures_.local_index == head && failures_.is_local()) {
      Fail(failures_.local_result, now);
      return;
    }
    if (phase_.data_error) {
      // Only once: while the queue drains, SQD has been entered already.
      if (!phase_.draining) core_.NoteDataError();
      break;
    }
    if (phase_.draining || queue().empty()) break;
    const SendWqe& wqe = queue().at(head);
    if (wqe.operation().kind != SendKind::kLocal) break;
    // This request has waited to be the oldest, and nothing after it has begun.
    assert(head == snd_.begun);
    const WcResult result = core_.ExecuteLocal(wqe);
    if (!result.ok()) {
      Fail(result, now);
      return;
    }
    if (core_.config.stops_at_data_errors &&
        wqe.opcode == SendOpcode::kMemcpy && core_.HasDataError(head)) {
      phase_.data_error = true;
    }
    EndUnsent(result, now);
  }
  if (phase_.running && drained() && !phase_.drain_reported) {
    phase_.drain_reported = true;
    core_.NoteDrained();
  }
}

void Requester::Report(QpReport* report) const {
  if (!phase_.running || queue().empty()) return;
  if (rnr_until_ != kNever) {
    report->waits_for = WaitsFor::kRnr;
    report->waits_until = rnr_until_;
  } else if (snd_.outstanding()) {
    report->waits_for = WaitsFor::kAck;
    if (loss_.since() != kNever) report->waits_since = loss_.since();
  } else if (const SendWqe& wqe = queue().at(queue().head());
             wqe.operation().takes_receive &&
             !HasCreditFor(wqe, queue().head() == snd_.begun)) {
    report->waits_for = WaitsFor::kCredits;
  }
}

}  // namespace transport
