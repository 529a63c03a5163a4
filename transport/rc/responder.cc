#include "transport/rc/responder.h"

#include <algorithm>
#include <utility>

#include "wire/psn.h"

namespace transport {

void Responder::Start() {
  Reset();
  expected_ = (uint64_t{1} << 32) + attributes().rq_psn;
  resources_.Allocate(attributes().max_dest_rd_atomic);
}

void Responder::Reset() {
  out_of_order_.Clear();
  resources_.Clear();
  gap_ = {};
  gap_wait_ = {};
  owed_ = {};
  msn_ = 0;
  responded_ = false;
}

void Responder::ResizeResources() {
  resources_.Resize(attributes().max_dest_rd_atomic);
}

void Responder::OnError() {
  out_of_order_.Clear();
  gap_.deadline = kNever;
  gap_.idle_reports = 0;
  // After a failure of our own the responses that precede its NAK still go out.
  // After a failure elsewhere, only what has been executed is acknowledged, and
  // only if no READ response would have to come first.
  if (owed_.nak.fatal) return;
  if (resources_.NextPending() != nullptr) owed_.due = false;
  owed_.nak = {};
  resources_.Clear();
}

uint64_t Responder::Extend(uint32_t psn) const {
  const auto low = static_cast<uint32_t>(expected_ & wire::kPsnMask);
  return expected_ + static_cast<int64_t>(wire::PsnDiff(psn, low));
}

bool Responder::OnRequest(const wire::PacketView& packet, Time now) {
  const uint64_t psn = Extend(packet.psn());
  if (psn < expected_) {
    OnDuplicate(packet, psn, now);
    return false;
  }
  if (psn > expected_) return OnGap(packet, psn, now);
  if (Execute(packet, now) == Outcome::kExecuted) {
    gap_.deadline = kNever;
    if (!out_of_order_.unused()) ExecuteBuffered(now);
  }
  return true;
}

void Responder::OnNotification(Time now) {
  if (!responded_) return;
  responded_ = false;
  core_.path->responses().OnNotification(now);
}

void Responder::OnTimer(Time now) {
  if (now >= gap_.deadline) OnGapTimer(now);
}

}  // namespace transport
