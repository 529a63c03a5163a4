#include "rxe_user/observe/device_report.h"

#include <span>

namespace rxe_user {
namespace {

void Append(std::span<const transport::Counter> table, const void* counters,
            std::vector<CounterValue>* out) {
  for (const transport::Counter& counter : table) {
    out->push_back({&counter, counter.Read(counters)});
  }
}

}  // namespace

std::vector<CounterValue> CountersOf(const LaneReport& lane) {
  std::vector<CounterValue> values;
  for (size_t i = 0; i < std::size(transport::kQpCounters); ++i) {
    values.push_back(
        {&transport::kQpCounters[i], lane.queue_pair_totals.values[i]});
  }
  Append(transport::kEndpointCounters, &lane.endpoint, &values);
  Append(kPortCounters, &lane.port, &values);
  Append(kLaneCounters, &lane.lane, &values);
  return values;
}

std::vector<CounterValue> CountersOf(const DeviceReport& device) {
  std::vector<CounterValue> sums;
  for (const LaneReport& lane : device.lanes) {
    const std::vector<CounterValue> values = CountersOf(lane);
    sums.resize(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      sums[i].counter = values[i].counter;
      sums[i].value += values[i].value;
    }
  }
  return sums;
}

std::vector<CounterValue> CountersOf(const transport::QpReport& queue_pair) {
  std::vector<CounterValue> values;
  Append(transport::kQpCounters, &queue_pair.counters, &values);
  return values;
}

}  // namespace rxe_user
