// `rxe-user check` on packets of other devices.
#include "tools/trace/check.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/golden/golden_files.h"
#include "tools/trace/latencies.h"
#include "tools/trace/recording.h"

namespace golden {
namespace {

// The findings, as "rule frame: text", of a capture that was taken between the
// ends, so that it counts as one of both ends.
std::vector<std::string> FindingsIn(const std::string& path) {
  trace::Recording recording;
  EXPECT_TRUE(trace::ReadRecording(path, &recording)) << recording.error;
  EXPECT_FALSE(recording.packets.empty()) << path;
  std::set<wire::IpAddress> addresses;
  for (const trace::Packet& p : recording.packets) addresses.insert(p.src);
  trace::CheckOptions options;
  options.senders.assign(addresses.begin(), addresses.end());
  std::vector<std::string> found;
  for (const trace::Finding& f : trace::CheckRecording(recording, options)) {
    found.push_back(std::string(f.rule) + " " + std::to_string(f.frame) + ": " +
                    f.what);
  }
  return found;
}

TEST(CheckTest, LinuxRxeKeepsTheRules) {
  for (const std::string& path : KernelRxeFiles()) {
    EXPECT_EQ(FindingsIn(path), std::vector<std::string>()) << path;
  }
}

TEST(CheckTest, LatenciesOfLinuxRxe) {
  std::set<std::string_view> names;
  for (const std::string& path : KernelRxeFiles()) {
    trace::Recording recording;
    ASSERT_TRUE(trace::ReadRecording(path, &recording));
    for (const trace::Latency& each : trace::MeasureLatencies(recording)) {
      names.insert(each.name);
      EXPECT_EQ(each.where, "capture") << path;
      EXPECT_LE(0, each.median);
      EXPECT_LE(each.median, each.p99);
      EXPECT_LE(each.p99, each.most);
      EXPECT_LT(each.most, 1'000'000'000) << path << " " << each.name;
    }
  }
  EXPECT_TRUE(names.contains("request to ACK"));
  EXPECT_TRUE(names.contains("READ request to first response"));
}

// Only captures that lack packets, or have them in another order, have findings
// (docs/interop.md).
TEST(CheckTest, HardwareKeepsTheRules) {
  const std::vector<std::string> files = HardwareFiles();
  if (files.empty()) GTEST_SKIP() << "no captures of hardware";
  for (const std::string& path : files) {
    const bool lacks_packets = path.find("mixed") != std::string::npos ||
                               path.find("discover") != std::string::npos ||
                               path.find("overwritten") != std::string::npos;
    for (const std::string& finding : FindingsIn(path)) {
      EXPECT_TRUE(lacks_packets && (finding.starts_with("psn-hole") ||
                                    finding.starts_with("ack-unsent")))
          << path << ": " << finding;
    }
  }
}

}  // namespace
}  // namespace golden
