#include "transport/raw/work_queue.h"

#include <cerrno>

namespace transport {

bool ReceiveFrame(const ReceivedFrame& received, uint32_t tag, Time now,
                  QpCore* core, MessageReceiver* receiver) {
  Completion completion;
  completion.opcode = WcOpcode::kReceive;
  if (received.checksums_good) completion.flags = kWcIpChecksumOk;
  completion.imm_be_or_rkey = tag;
  core->counters.rx_packets += 1;
  core->counters.rx_bytes += received.frame.bytes.size();
  switch (receiver->ReceiveWhole({}, received.frame.bytes, &completion, now)) {
    case ReceiveOutcome::kCompleted:
      return true;
    case ReceiveOutcome::kNoReceive:
      ++core->counters.out_of_buffer;
      return true;
    case ReceiveOutcome::kReceiveTooShort:
      receiver->FailReceive(WcStatus::kLocalLengthError, now);
      return true;
    case ReceiveOutcome::kReceiveNotWritable:
      receiver->FailReceive(WcStatus::kLocalProtectionError, now);
      return false;
    default:
      return false;
  }
}

WorkQueue::WorkQueue(const QpConfig& config)
    : core_(config, wire::Transport::kNone), receiver_(core_) {}

int WorkQueue::Modify(WqState to, Time now) {
  if (to == WqState::kReset) {
    core_.receive_queue->Clear();
    receiver_.Reset();
    core_.failed = core_.has_findings = false;
    core_.first_error = Reason::kNone;
    state_ = to;
    return 0;
  }
  if (to == WqState::kReady && state_ == WqState::kError) return EINVAL;
  if (to == WqState::kError && state_ != WqState::kError) {
    state_ = to;
    core_.NoteFirstError(Reason::kModifiedToError);
    receiver_.Flush(now);
  }
  state_ = to;
  return 0;
}

int WorkQueue::Post(const ReceiveRequest& request, Time now) {
  if (state_ == WqState::kReset) return EINVAL;
  if (const int error = core_.receive_queue->Post(request)) return error;
  if (state_ == WqState::kError) receiver_.Flush(now);
  return 0;
}

void WorkQueue::OnCqError(Time now) {
  if (state_ != WqState::kError) Fail(Reason::kCqOverrun, now);
}

void WorkQueue::Fail(Reason reason, Time now) {
  core_.NoteFirstError(reason);
  state_ = WqState::kError;
  receiver_.Flush(now);
  on_failure_();
}

void WorkQueue::OnFrame(const ReceivedFrame& received, uint32_t tag, Time now) {
  if (state_ != WqState::kReady) {
    ++core_.counters.dropped_state;
    return;
  }
  if (!ReceiveFrame(received, tag, now, &core_, &receiver_)) {
    Fail(core_.refusal, now);
  }
}

}  // namespace transport
