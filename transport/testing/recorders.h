// A completion queue, a shared receive queue and an event sink that tests can
// read.
#ifndef TRANSPORT_TESTING_RECORDERS_H_
#define TRANSPORT_TESTING_RECORDERS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "transport/base/work.h"

namespace transport {

// Counts each completion as polled at once: tests may read it after its queue
// is gone.
class RecordingCq : public CompletionSink {
 public:
  bool Push(const Completion& completion) override {
    if (completions.size() >= capacity) return false;
    completions.push_back(completion);
    completion.slot.Free();
    return true;
  }
  std::vector<Completion> Take() { return std::exchange(completions, {}); }

  std::vector<Completion> completions;
  size_t capacity = ~size_t{0};
};

class RecordingEvents : public EventSink {
 public:
  void OnQpEvent(QueuePair&, QpEvent event) override {
    events.push_back(event);
  }
  std::optional<uint8_t> Refuse(const RequestToExecute& request) override {
    const auto refusal = refused.extract(request.psn);
    if (refusal.empty()) return std::nullopt;
    return refusal.mapped();
  }
  std::vector<QpEvent> Take() { return std::exchange(events, {}); }

  std::vector<QpEvent> events;
  std::map<uint32_t, uint8_t> refused;  // requests, once, by PSN: AETH syndrome
};

class FakeSrq : public ReceiveSource {
 public:
  bool Pop(ReceiveWqe* out) override {
    if (queue.empty()) return false;
    *out = queue.front();
    queue.pop_front();
    return true;
  }
  std::deque<ReceiveWqe> queue;
};

}  // namespace transport

#endif  // TRANSPORT_TESTING_RECORDERS_H_
