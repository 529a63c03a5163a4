#include "rxe_user/observe/device_report.h"

#include <algorithm>
#include <set>
#include <string>

#include "gtest/gtest.h"

namespace rxe_user {
namespace {

uint64_t Value(const std::vector<CounterValue>& values, std::string_view name) {
  for (const CounterValue& value : values) {
    if (value.counter->name == name) return value.value;
  }
  ADD_FAILURE() << "there is no counter " << name;
  return 0;
}

LaneReport Lane(uint64_t n) {
  LaneReport lane;
  lane.endpoint.rx_datagrams = n;
  lane.endpoint.tx_bytes = 4 * n;
  lane.port.rx_overflow = 10 * n;
  lane.lane.rounds = 100 * n;
  transport::QpCounters counters;
  counters.duplicates = static_cast<uint32_t>(1000 * n);
  lane.queue_pair_totals.Add(counters);
  return lane;
}

TEST(DeviceReport, SumsOverLanes) {
  DeviceReport device;
  device.lanes = {Lane(1), Lane(2)};
  const auto sums = CountersOf(device);
  EXPECT_EQ(Value(sums, "port_rcv_packets"), 3u);
  EXPECT_EQ(Value(sums, "port_xmit_data"), 3u);  // in units of 4 bytes
  EXPECT_EQ(Value(sums, "rx_socket_overflow"), 30u);
  EXPECT_EQ(Value(sums, "lane_rounds"), 300u);
  EXPECT_EQ(Value(sums, "duplicate_request"), 3000u);
  EXPECT_EQ(CountersOf(device.lanes[1]).size(), sums.size());
}

// Names are unique over all tables.
TEST(DeviceReport, NamesAreUnique) {
  std::set<std::string_view> names;
  for (const CounterValue& value : CountersOf(LaneReport())) {
    EXPECT_TRUE(names.insert(value.counter->name).second)
        << value.counter->name;
    EXPECT_FALSE(value.counter->help.empty()) << value.counter->name;
  }
  EXPECT_EQ(names.size(), std::size(transport::kQpCounters) +
                              std::size(transport::kEndpointCounters) +
                              std::size(kPortCounters) +
                              std::size(kLaneCounters));
}

}  // namespace
}  // namespace rxe_user
