#include "transport/rc/responder.h"

#include <algorithm>
#include <utility>

#include "wire/psn.h"

namespace transport {

void Responder::Start() {
  Reset();
  expected_ = (uint64_t{1} << 32) + attributes().rq_psn;
  resources_.assign(attributes().max_dest_rd_atomic, Resource{});
}

void Responder::Reset() {
  msn_ = 0;
  nak_made_ = NakMade::kNone;
  reorder_wait_.Reset();
  reported_gap_ = kNoPsn;
  nak_round_trip_ = 0;
  filled_by_first_ = filling_ = false;
  out_of_order_.Clear();
  gap_deadline_ = kNever;
  idle_reports_ = 0;
  ForgetResponses();
  nak_ = {};
  unacknowledged_ = ack_due_ = false;
  responded_ = false;
  repeated_ack_ = 0;
}

void Responder::ForgetResponses() {
  first_resource_ = next_resource_ = first_pending_ = 0;
  resources_.clear();
}

void Responder::ResizeResources() {
  const size_t size = attributes().max_dest_rd_atomic;
  std::vector<Resource> resized(size);
  const uint64_t kept =
      std::min<uint64_t>(size, next_resource_ - first_resource_);
  for (uint64_t n = next_resource_ - kept; n < next_resource_; ++n) {
    resized[n % size] = resources_[n % resources_.size()];
  }
  first_resource_ = next_resource_ - kept;
  first_pending_ = std::max(first_pending_, first_resource_);
  resources_ = std::move(resized);
}

void Responder::OnError() {
  out_of_order_.Clear();
  gap_deadline_ = kNever;
  idle_reports_ = 0;
  // After a failure of our own the responses that precede its NAK still go
  // out; after a failure of another's making only what is already executed is
  // acknowledged, if no READ response would have to come first.
  if (nak_.fatal) return;
  if (NextPending() != nullptr) ack_due_ = false;
  nak_ = {};
  ForgetResponses();
}

uint64_t Responder::Extend(uint32_t psn) const {
  const auto low = static_cast<uint32_t>(expected_ & wire::kPsnMask);
  return expected_ + static_cast<int64_t>(wire::PsnDiff(psn, low));
}

bool Responder::OnRequest(const wire::PacketView& packet, Time now) {
  const uint64_t psn = Extend(packet.bth().psn);
  if (psn < expected_) {
    OnDuplicate(packet, psn, now);
    return false;
  }
  if (psn > expected_) return OnGap(packet, psn, now);
  if (Execute(packet, now) == Outcome::kExecuted) {
    gap_deadline_ = kNever;
    if (!out_of_order_.unused()) ExecuteKept(now);
  }
  return true;
}

void Responder::OnNotification(Time now) {
  if (!responded_) return;
  responded_ = false;
  core_.path->responses().OnNotification(now);
}

void Responder::OnTimer(Time now) {
  if (now >= gap_deadline_) OnGapTimer(now);
}

}  // namespace transport
