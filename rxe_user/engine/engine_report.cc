// The report of an engine (observe/device_report.h).
#include <algorithm>
#include <optional>
#include <unordered_set>

#include "rxe_user/engine/engine_impl.h"

namespace rxe_user {
namespace {

// A report lists no more queue pairs than this (some 10 MB of text). The others
// count in its sums.
constexpr size_t kMaxQueuePairs = 10'000;
// Queue pairs copied under one hold of the lane's lock: a few microseconds.
constexpr size_t kBatch = 32;

}  // namespace

LaneReport EngineLane::Report() {
  LaneImpl& lane = lane_;
  std::vector<uint32_t> numbers;
  {
    const Lane::Guard guard(lane);
    numbers = lane.endpoint().QueuePairNumbers();
  }
  std::ranges::sort(numbers);
  LaneReport report;
  report.slot = slot_->number();
  std::vector<transport::QpReport> all;
  all.reserve(numbers.size());
  for (size_t done = 0; done < numbers.size();) {
    const size_t end = std::min(done + kBatch, numbers.size());
    const Lane::Guard guard(lane);
    for (; done < end; ++done) {
      const transport::EndpointQp* qp = lane.endpoint().Find(numbers[done]);
      if (qp == nullptr) continue;
      all.push_back(qp->Report());
      const transport::QpReport& last = all.back();
      if (lane.port() != nullptr &&
          lane.port()->UsesMemory(last.source, last.destination,
                                  last.dest_qpn)) {
        report.by_memory.insert(last.qpn);
      }
    }
  }
  // A queue pair that was destroyed meanwhile is counted in retired() now and
  // is no longer listed, so each is counted once.
  {
    const Lane::Guard guard(lane);
    numbers = lane.endpoint().QueuePairNumbers();
    report.queue_pair_totals = lane.endpoint().retired();
    report.endpoint = lane.endpoint().counters();
    report.lane = lane.counters();
    report.events = lane.recorder().Events();
    report.events_lost = lane.recorder().lost();
    if (lane.port() != nullptr) report.port = lane.port()->counters();
  }
  const std::unordered_set<uint32_t> live(numbers.begin(), numbers.end());
  std::erase_if(all, [&](const transport::QpReport& qp) {
    return !live.contains(qp.qpn);
  });
  for (const transport::QpReport& qp : all) {
    report.queue_pair_totals.Add(qp.counters);
  }
  report.left_out = all.size() - std::min(all.size(), kMaxQueuePairs);
  all.resize(all.size() - report.left_out);
  report.queue_pairs = std::move(all);
  return report;
}

std::optional<LaneReport> EngineLane::CountersAtExit() {
  LaneReport report;
  const bool read = lane_.ReadAtExit([&] {
    transport::Endpoint& endpoint = lane_.endpoint();
    report.queue_pair_totals = endpoint.retired();
    for (const uint32_t number : endpoint.QueuePairNumbers()) {
      report.queue_pair_totals.Add(endpoint.Find(number)->Report().counters);
    }
    report.endpoint = endpoint.counters();
    report.lane = lane_.counters();
    if (lane_.port() != nullptr) report.port = lane_.port()->counters();
  });
  if (!read) return std::nullopt;
  return report;
}

DeviceReport EngineImpl::Report() {
  DeviceReport report;
  report.name = device_->name;
  report.netdev = device_->netdev;
  report.now = Lane::Now();
  if (const ProcessFaults* const faults = ProcessFaults::Current()) {
    report.fault_rules = faults->Status();
  }
  for (EngineLane& lane : lanes_) {
    if (lane.slot() != nullptr) report.lanes.push_back(lane.Report());
  }
  return report;
}

}  // namespace rxe_user
