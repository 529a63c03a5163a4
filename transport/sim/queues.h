// Completion queues, a shared receive queue and an event sink for tests.
#ifndef TRANSPORT_SIM_QUEUES_H_
#define TRANSPORT_SIM_QUEUES_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "transport/base/work.h"
#include "transport/sim/checker.h"
#include "transport/sim/endpoint_call.h"

namespace sim {

// A completion queue of `capacity` entries. `on_push` notifies the application
// like a completion channel; it must not call into the transport.
class SimCq : public transport::CompletionSink {
 public:
  explicit SimCq(size_t capacity = SIZE_MAX) : capacity_(capacity) {}

  bool Push(const transport::Completion& completion) override {
    const ScopedEndpointCall outside(false);
    if (entries_.size() >= capacity_) {
      overrun_ = true;
      return false;
    }
    entries_.push_back(completion);
    ++pushed_;
    if (on_push) on_push(completion);
    return true;
  }

  // Removes the oldest completion. False when there is none.
  bool Poll(transport::Completion* out) {
    if (entries_.empty()) return false;
    *out = entries_.front();
    out->slot.Free();
    entries_.pop_front();
    return true;
  }
  std::vector<transport::Completion> TakeAll() {
    std::vector<transport::Completion> all(entries_.begin(), entries_.end());
    for (const transport::Completion& one : all) one.slot.Free();
    entries_.clear();
    return all;
  }
  // Call before queue pair `qpn` is reset or destroyed. Its completions can
  // still be polled, but no longer free slots in its queues.
  void ForgetSlots(uint32_t qpn) {
    for (transport::Completion& one : entries_) {
      if (one.qpn == qpn) std::exchange(one.slot, {}).Free();
    }
  }
  size_t size() const { return entries_.size(); }
  uint64_t pushed() const { return pushed_; }
  bool overrun() const { return overrun_; }

  std::function<void(const transport::Completion&)> on_push;

 private:
  size_t capacity_;
  std::deque<transport::Completion> entries_;
  uint64_t pushed_ = 0;
  bool overrun_ = false;
};

class SimSrq : public transport::ReceiveSource {
 public:
  explicit SimSrq(transport::PdId pd) : pd_(pd) {}

  void Post(uint64_t wr_id, const std::vector<transport::Sge>& sges) {
    transport::ReceiveWqe wqe;
    wqe.wr_id = wr_id;
    wqe.pd = pd_;
    wqe.sges = sges;
    queue_.push_back(wqe);
  }
  bool Pop(transport::ReceiveWqe* out) override {
    if (queue_.empty()) return false;
    *out = queue_.front();
    queue_.pop_front();
    return true;
  }
  size_t size() const { return queue_.size(); }

 private:
  transport::PdId pd_;
  std::deque<transport::ReceiveWqe> queue_;
};

class SimEvents : public transport::EventSink {
 public:
  void OnQpEvent(transport::QueuePair& qp, transport::QpEvent event) override;
  // Number of `event`s of queue pair `qpn`.
  int Count(uint32_t qpn, transport::QpEvent event) const {
    int count = 0;
    for (const auto& [q, e] : events_) count += q == qpn && e == event;
    return count;
  }
  void Clear() { events_.clear(); }

  std::function<void(uint32_t qpn, transport::QpEvent event)> on_event;

 private:
  std::vector<std::pair<uint32_t, transport::QpEvent>> events_;
};

}  // namespace sim

#endif  // TRANSPORT_SIM_QUEUES_H_
