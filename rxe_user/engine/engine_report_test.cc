// Reports of engines over the statistics socket (rxe-user stat).
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rxe_user/observe/report_text.h"
#include "rxe_user/observe/stat_socket.h"
#include "rxe_user/ports/socket_io.h"
#include "rxe_user/testing/node.h"
#include "rxe_user/testing/test_slots.h"

namespace rxe_user {
namespace {

using Records = std::vector<ReportRecord>;

// The statistics sockets of this process.
std::vector<std::string> Names() {
  auto names = ListStatSockets();
  EXPECT_TRUE(names.ok());
  const std::string prefix = "rxe_user-stat-" + std::to_string(::getpid());
  std::erase_if(*names, [&](const std::string& name) {
    return !name.starts_with(prefix + "-");
  });
  return *names;
}

// The engine report that contains queue pair `qpn`.
std::optional<Records> ReportWith(uint32_t qpn) {
  for (const std::string& name : Names()) {
    const auto reply = AskForReport(name);
    if (!reply.ok()) continue;
    std::optional<Records> records = ParseReport(reply->text);
    if (!records) continue;
    for (const ReportRecord& record : *records) {
      if (record.kind == "queue_pair" && record.Number("qpn") == qpn) {
        return records;
      }
    }
  }
  return std::nullopt;
}

const ReportRecord& Find(const Records& records, std::string_view kind) {
  const auto it = std::ranges::find(records, kind, &ReportRecord::kind);
  EXPECT_NE(it, records.end()) << kind;
  return *it;
}

uint64_t Counter(const ReportRecord& record, const std::string& name) {
  for (const auto& [key, value] : record.counters) {
    if (key == name) return value;
  }
  ADD_FAILURE() << "no counter " << name;
  return 0;
}

uint64_t Counter(const std::vector<CounterValue>& values,
                 std::string_view name) {
  for (const CounterValue& value : values) {
    if (value.counter->name == name) return value.value;
  }
  ADD_FAILURE() << "no counter " << name;
  return 0;
}

class EngineReportTest : public ::testing::Test {
 protected:
  std::unique_ptr<Node> MakeNode() {
    return std::make_unique<Node>(slots_, *wire::IpAddress::Parse("127.0.0.1"),
                                  CreateSocketPort);
  }
  TestSlots slots_;
};

TEST_F(EngineReportTest, ReportsItsQueuePairs) {
  const auto a = MakeNode(), b = MakeNode();
  a->Connect(*b);
  b->Connect(*a);
  const std::vector<uint8_t> from(100, 7);
  std::vector<uint8_t> to(100);
  ASSERT_EQ(a->Write(1, from.data(), 100, to.data()), 0);
  ASSERT_TRUE(a->Poll().has_value());
  EXPECT_EQ(Names().size(), 2u);

  const auto report = ReportWith(a->qpn());
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(Find(*report, "process").Number("pid"),
            static_cast<uint64_t>(::getpid()));
  const ReportRecord& device = Find(*report, "device");
  EXPECT_EQ(Find(*report, "lane").Number("slot"), a->qpn() >> 12);
  EXPECT_EQ(device.Number("queue_pair_count"), 1u);
  EXPECT_EQ(Counter(device, "rdma_writes"), 1u);
  const ReportRecord& qp = Find(*report, "queue_pair");
  EXPECT_EQ(qp.Word("type"), "RC");
  EXPECT_EQ(qp.Word("state"), "RTS");
  EXPECT_EQ(qp.Number("peer_qpn"), b->qpn());
  EXPECT_EQ(qp.Word("peer_address"), "127.0.0.1");
  EXPECT_EQ(qp.Number("unacked_psn"), qp.Number("send_psn"));
  EXPECT_EQ(qp.Number("send_queued"), 0u);
  EXPECT_EQ(Counter(qp, "rdma_writes"), 1u);
  EXPECT_GE(Counter(qp, "sent_pkts"), 1u);
}

// The counters of a destroyed queue pair stay in the device's sums.
TEST_F(EngineReportTest, CountersDoNotDecrease) {
  auto a = MakeNode(), b = MakeNode();
  const std::shared_ptr<EngineImpl> engine = a->shared_engine();
  a->Connect(*b);
  b->Connect(*a);
  const std::vector<uint8_t> from(100, 7);
  std::vector<uint8_t> to(100);
  ASSERT_EQ(a->Write(1, from.data(), 100, to.data()), 0);
  ASSERT_TRUE(a->Poll().has_value());
  const auto before = CountersOf(engine->Report());
  EXPECT_EQ(Counter(before, "rdma_writes"), 1u);
  a.reset();
  const DeviceReport report = engine->Report();
  EXPECT_TRUE(report.lanes[0].queue_pairs.empty());
  const auto after = CountersOf(report);
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_GE(after[i].value, before[i].value) << before[i].counter->name;
  }
}

// A child of fork neither answers for its parent nor keeps its socket.
TEST_F(EngineReportTest, AForkedChildDoesNotAnswer) {
  auto node = MakeNode();
  const std::vector<std::string> names = Names();
  ASSERT_EQ(names.size(), 1u);
  int ends[2];  // one for each process
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  char byte = 'x';
  const pid_t child = ::fork();
  if (child == 0) {
    (void)!::write(ends[1], &byte, 1);
    (void)!::read(ends[1], &byte, 1);
    ::_exit(0);
  }
  // The child has closed the socket that it inherited.
  ASSERT_EQ(::read(ends[0], &byte, 1), 1);
  EXPECT_TRUE(AskForReport(names[0]).ok());
  node.reset();
  EXPECT_EQ(AskForReport(names[0]).status().code(),
            absl::StatusCode::kNotFound);
  ASSERT_EQ(::write(ends[0], &byte, 1), 1);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace rxe_user
