#include "transport/uc/uc_queue_pair.h"

namespace transport {

UcQueuePair::UcQueuePair(Endpoint& endpoint, const QpConfig& config)
    : QueuePair(endpoint, config, wire::Transport::kUc) {}

UcQueuePair::~UcQueuePair() { EnterReset(); }

void UcQueuePair::StartReceiving() {
  expected_psn_ = core().attributes.rq_psn;
  unheard_ = true;
  dropping_ = false;
  missed_ = 0;
}

void UcQueuePair::StartSending(Time now) {
  next_psn_ = core().attributes.sq_psn;
  sending_ = true;
  RunLocalWork(now);
}

void UcQueuePair::Drain(Time now) {
  draining_ = true;
  drain_reported_ = false;
  RunLocalWork(now);
}

void UcQueuePair::Resume(Time now) {
  draining_ = false;
  sending_ = true;
  RunLocalWork(now);
}

void UcQueuePair::ReportService(QpReport* report) const {
  report->send_psn = report->unacked_psn = next_psn_;
  report->expected_psn = expected_psn_;
}

void UcQueuePair::OnError() {
  StopSending();
  report_due_ = false;
}

void UcQueuePair::OnReset() {
  StopSending();
  flight_ = {};
  dropping_ = report_due_ = report_first_ = false;
}

void UcQueuePair::OnOtherPath() {
  // It has drained: nothing is in flight.
  flight_ = {};
  report_due_ = report_first_ = false;
}

}  // namespace transport
