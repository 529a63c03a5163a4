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
      file.ExtendTo(arrow.t0);
      file.PacketsOf(arrow.local_qpn, &QueuePair::sent, arrow);
    }
    if (arrow.received_file != trace::kNone) {
      FileIndex& file = files[arrow.received_file];
      file.ExtendTo(arrow.t1);
      file.PacketsOf(arrow.received->qpn, &QueuePair::received, arrow);
      if (!file.overflows_.empty()) {
        file.reads_.emplace_back(arrow.t1, arrow.t1 - arrow.received->waited());
      }
    }
  }
  for (FileIndex& file : files) {
    std::sort(file.reads_.begin(), file.reads_.end());
    int64_t earliest = INT64_MAX;
    for (auto read = file.reads_.rbegin(); read != file.reads_.rend(); ++read) {
      earliest = read->second = std::min(read->second, earliest);
    }
  }
  return files;
}

void FileIndex::Add(const trace::TimedEvent& timed) {
  const trace::Event& event = *timed.event;
  const uint32_t qpn = event.header().qpn;
  last_event_ = timed.time;
  ExtendTo(timed.time);
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
  // Packets of no queue pair, and DC CONNECTs, which name none.
  if (qpn == 0 || qpn == wire::kNoDcQpn) return;
  (queue_pairs_[qpn].*list).push_back(&arrow);
}

uint64_t FileIndex::OverflowUntil(int64_t end) const {
  const auto until = [this](int64_t time) {
    return std::upper_bound(
        overflows_.begin(), overflows_.end(), time,
        [](int64_t t, const auto& each) { return t < each.first; });
  };
  auto after = until(end);
  // When the process read the last packet that had arrived until `end`.
  const auto caught_up = std::upper_bound(
      reads_.begin(), reads_.end(), end,
      [](int64_t t, const auto& each) { return t < each.second; });
  if (caught_up != reads_.begin() && (caught_up - 1)->first > end) {
    after = until((caught_up - 1)->first);
    if (after != overflows_.end()) ++after;
  }
  return after == overflows_.begin() ? 0 : (after - 1)->second;
}

void FileIndex::ExtendTo(int64_t time) { last_ = std::max(last_, time); }

bool FileIndex::HasSlot(uint16_t slot, const wire::IpAddress& address,
                        int64_t end) const {
  for (const wire::IpAddress& source : {address, wire::IpAddress()}) {
    const auto found = slots_.find({slot, source});
    if (found != slots_.end() && found->second <= end) return true;
  }
  return false;
}

}  // namespace rxe_user_cli
