#include "tools/rxe_user_cli/explain_index.h"

#include <algorithm>

#include "rxe_user/base/qpn.h"
#include "rxe_user/observe/trace_events.h"
#include "wire/headers.h"

namespace rxe_user_cli {

namespace events = rxe_user::trace;

std::vector<FileIndex> FileIndex::OfFiles(const trace::Timeline& timeline) {
  std::vector<FileIndex> files;
  for (const trace::Recording* recording : timeline.recordings) {
    files.push_back(FileIndex(*recording));
  }
  for (const trace::TimedEvent& timed : timeline.events) {
    files[timed.file].Add(timed);
  }
  for (const trace::Arrow& arrow : timeline.arrows) {
    if (arrow.sent_file != trace::kNone) {
      FileIndex& file = files[arrow.sent_file];
      file.Reach(arrow.t0);
      file.PacketsOf(arrow.local_qpn, &QueuePair::sent, arrow);
    }
    if (arrow.received_file != trace::kNone) {
      FileIndex& file = files[arrow.received_file];
      file.Reach(arrow.t1);
      file.PacketsOf(arrow.received->qpn, &QueuePair::received, arrow);
    }
  }
  return files;
}

void FileIndex::Add(const trace::TimedEvent& timed) {
  const trace::Event& event = *timed.event;
  const uint32_t qpn = event.header().qpn;
  last_event_ = timed.time;
  Reach(timed.time);
  if (event.As<events::CallEvent>()) {
    calls_.push_back(&timed);
    return;
  }
  if (event.As<events::FaultRuleEvent>()) {
    rules_.push_back(&timed);
    return;
  }
  if (const auto full = event.As<events::OverflowEvent>()) {
    overflows_.emplace_back(timed.time,
                            OverflowUntil(INT64_MAX) + full->packets);
    return;
  }
  if (const auto post = event.As<events::PostedEvent>()) {
    if (post->queue == static_cast<uint8_t>(events::QueueKind::kShared)) {
      if (post->error == 0) first_shared_ = std::min(first_shared_, timed.time);
      return;
    }
  }
  if (qpn == 0) return;
  if (const auto state = event.As<events::QpStateEvent>()) {
    slots_.try_emplace(
        {rxe_user::SlotOf(qpn), wire::IpAddress::FromGid(state->source)},
        timed.time);
  }
  queue_pairs_[qpn].events.push_back(&timed);
}

void FileIndex::PacketsOf(uint32_t qpn,
                          std::vector<const trace::Arrow*> QueuePair::*list,
                          const trace::Arrow& arrow) {
  // Of no queue pair; or what asks for a DC connection, which names none.
  if (qpn == 0 || qpn == wire::kNoDcQpn) return;
  (queue_pairs_[qpn].*list).push_back(&arrow);
}

uint64_t FileIndex::OverflowUntil(int64_t end) const {
  const auto after = std::upper_bound(
      overflows_.begin(), overflows_.end(), end,
      [](int64_t time, const auto& each) { return time < each.first; });
  return after == overflows_.begin() ? 0 : (after - 1)->second;
}

void FileIndex::Reach(int64_t time) { last_ = std::max(last_, time); }

bool FileIndex::HasSlot(uint16_t slot, const wire::IpAddress& address,
                        int64_t end) const {
  for (const wire::IpAddress& source : {address, wire::IpAddress()}) {
    const auto found = slots_.find({slot, source});
    if (found != slots_.end() && found->second <= end) return true;
  }
  return false;
}

}  // namespace rxe_user_cli
