// The report of one device of this process: a snapshot. Its counters never
// decrease while the device is open.
#ifndef RXE_USER_OBSERVE_DEVICE_REPORT_H_
#define RXE_USER_OBSERVE_DEVICE_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "rxe_user/engine/lane_counters.h"
#include "rxe_user/faults/process_faults.h"
#include "rxe_user/observe/recorder.h"
#include "rxe_user/ports/port_counters.h"
#include "transport/base/counters.h"
#include "transport/base/qp_report.h"

namespace rxe_user {

struct LaneReport {
  uint16_t slot = 0;
  transport::EndpointCounters endpoint;
  PortCounters port;
  LaneCounters lane;
  // Includes queue pairs that were destroyed.
  transport::QpCounterTotals queue_pair_totals;
  std::vector<transport::QpReport> queue_pairs;
  // Numbers of queue pairs whose packets go through shared memory
  // (docs/design/progress.md, "Same host").
  std::unordered_set<uint32_t> by_memory;
  // Queue pairs that are in the totals but not listed.
  size_t left_out = 0;
  std::vector<RecordedEvent> events;  // oldest first
  uint64_t events_lost = 0;
};

struct DeviceReport {
  std::string name;         // "rxeu0"
  std::string netdev;       // "eth0"
  transport::Time now = 0;  // Lane::Now()
  std::vector<LaneReport> lanes;
  std::vector<FaultRuleStatus> fault_rules;  // of the process
};

struct CounterValue {
  const transport::Counter* counter = nullptr;
  uint64_t value = 0;
};

// All counters in a fixed order; those of a device are sums over its lanes.
std::vector<CounterValue> CountersOf(const LaneReport& lane);
std::vector<CounterValue> CountersOf(const DeviceReport& device);
std::vector<CounterValue> CountersOf(const transport::QpReport& queue_pair);

}  // namespace rxe_user

#endif  // RXE_USER_OBSERVE_DEVICE_REPORT_H_
