#include "rxe_user/observe/recorder.h"

#include <algorithm>

namespace rxe_user {
namespace {

using transport::RareEvent;

bool IsRepeated(const RareEvent& a, const RareEvent& b) {
  return a.qpn == b.qpn && a.kind == b.kind && a.reason == b.reason &&
         a.value == b.value;
}

}  // namespace

void Recorder::Add(const RareEvent& event) {
  // A repeated state is a step of its own.
  if (event.kind != transport::RareEventKind::kState) {
    const uint64_t back = std::min<uint64_t>(added_, kLookBack);
    for (uint64_t i = 1; i <= back; ++i) {
      RecordedEvent& earlier = At(added_ - i);
      if (!IsRepeated(earlier.event, event)) continue;
      earlier.last = event.time;
      ++earlier.count;
      return;
    }
  }
  const RecordedEvent added = {.event = event, .last = event.time};
  if (ring_.size() < kEvents) {
    ring_.push_back(added);
  } else {
    At(added_) = added;
  }
  ++added_;
}

std::vector<RecordedEvent> Recorder::Events() const {
  std::vector<RecordedEvent> events;
  events.reserve(ring_.size());
  for (uint64_t i = lost(); i < added_; ++i) {
    events.push_back(ring_[i % kEvents]);
  }
  return events;
}

}  // namespace rxe_user
