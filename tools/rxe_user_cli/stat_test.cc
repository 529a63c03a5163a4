#include "tools/rxe_user_cli/stat.h"

#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>

#include "gtest/gtest.h"
#include "rxe_user/observe/device_report.h"
#include "rxe_user/observe/report_text.h"
#include "rxe_user/observe/stat_socket.h"
#include "tools/rxe_user_cli/stat_format.h"
#include "tools/rxe_user_cli/stat_model.h"

namespace rxe_user_cli {
namespace {

using Json = nlohmann::json;

// A device with a connected queue pair and one in RESET.
rxe_user::DeviceReport Sample(uint64_t packets) {
  transport::QpReport qp;
  qp.qpn = 0x50011;
  qp.state = transport::QpState::kRts;
  qp.dest_qpn = 0x60022;
  qp.source = *wire::IpAddress::Parse("192.0.2.1");
  qp.destination = *wire::IpAddress::Parse("192.0.2.2");
  qp.path_mtu = 1024;
  qp.send_psn = 17;
  qp.unacked_psn = 15;
  qp.expected_psn = 99;
  qp.send_queued = 2;
  qp.window = 131072;
  qp.in_flight = 2560;
  qp.paused = 4352;
  qp.smoothed_rtt = 11'600;
  qp.counters.tx_packets = packets;
  qp.counters.rx_packets = 3;
  qp.counters.retransmitted = 1;
  transport::QpReport fresh;
  fresh.qpn = 0x50012;
  fresh.path_mtu = 1024;
  rxe_user::LaneReport lane;
  lane.queue_pair_totals.Add(qp.counters);
  lane.queue_pairs = {qp, fresh};
  lane.endpoint.tx_datagrams = packets;
  lane.lane.rounds = 8;
  lane.slot = 5;
  rxe_user::DeviceReport device;
  device.name = "rxeu0";
  device.netdev = "eth0";
  device.lanes = {lane};
  return device;
}

std::vector<StatProcess> Processes(uint64_t packets) {
  auto process = ReadReport(4711, rxe_user::ReportText(Sample(packets)));
  EXPECT_TRUE(process.has_value());
  process->command = "ib_write_bw";
  return {*process};
}

TEST(StatFormat, TextShowsDevicesLanesQueuePairsAndCounters) {
  EXPECT_EQ(
      StatAsText(Processes(5)),
      "PROCESS  COMMAND      DEVICE  NETDEV  LANES  QUEUE PAIRS\n"
      "4711     ib_write_bw  rxeu0   eth0    1      2\n"
      "\n"
      "LANE  SLOT  QUEUE PAIRS  SENT PKTS  RCVD PKTS  ROUNDS  HELPER WAKES\n"
      "0     5     2            5          0          8       0\n"
      "\n"
      "QPN       TYPE  STATE  PEER QPN  PEER ADDRESS  SEND PSN  UNACKED  "
      "EXPECTED  QUEUED  IN FLIGHT  PAUSED  WINDOW  RTT    SENT PKTS  "
      "RCVD PKTS  OTHER\n"
      "0x050011  RC    RTS    0x060022  192.0.2.2     17        15       "
      "99        2       2560       4352    131072  12 us  5          3        "
      "  "
      "retrans_pkts=1\n"
      "0x050012  RC    RESET  -         -             0         0        "
      "0         0       -          -       -       -      0          "
      "0          -\n"
      "\n"
      "COUNTER            VALUE  MEANING\n"
      "sent_pkts          5      packets sent, retransmissions included\n"
      "rcvd_pkts          3      packets received\n"
      "retrans_pkts       1      request packets retransmitted\n"
      "port_xmit_packets  5      packets sent\n"
      "lane_rounds        8      rounds of receive, timers and transmit by "
      "threads of the application\n");
}

TEST(StatFormat, TextNamesTheMediumThatIsNotUdp) {
  rxe_user::DeviceReport device = Sample(5);
  device.lanes[0].by_memory = {0x050011};
  auto process = ReadReport(4711, rxe_user::ReportText(device));
  ASSERT_TRUE(process.has_value());
  const std::string text = StatAsText({*process});
  EXPECT_NE(text.find("  medium=memory retrans_pkts=1\n"), std::string::npos)
      << text;
  EXPECT_NE(StatAsJson({*process}).find("\"medium\": \"memory\""),
            std::string::npos)
      << StatAsJson({*process});
}

TEST(StatFormat, ConnectionManagersShowMessagesByKind) {
  rxe_user::ManagerReport report;
  report.connections = 2;
  report.counters = {{"cm_tx_msgs_req", 5},    {"cm_tx_msgs_rep", 0},
                     {"cm_tx_retries_req", 1}, {"cm_rx_msgs_req", 0},
                     {"cm_rx_msgs_rep", 4},    {"cm_rx_duplicates_rep", 3},
                     {"cm_held_back", 7},      {"cm_stale", 0}};
  auto process = ReadReport(4711, rxe_user::ReportText(report));
  ASSERT_TRUE(process.has_value());
  process->command = "rping";
  EXPECT_EQ(StatAsText({*process}),
            "PROCESS  COMMAND  CONNECTIONS\n"
            "4711     rping    2\n"
            "\n"
            "MESSAGE  SENT  RETRIES  RECEIVED  DUPLICATES\n"
            "req      5     1        0         0\n"
            "rep      0     0        4         3\n"
            "\n"
            "COUNTER       VALUE\n"
            "cm_held_back  7\n");
  const Json json = Json::parse(StatAsJson({*process}));
  EXPECT_EQ(json["processes"][0]["connection_managers"][0]["counters"]
                ["cm_tx_msgs_req"],
            5);
}

TEST(StatFormat, JsonHasEveryCounterAndAttribute) {
  const Json json = Json::parse(StatAsJson(Processes(5)));
  const Json& process = json["processes"][0];
  EXPECT_EQ(process["pid"], 4711);
  EXPECT_EQ(process["command"], "ib_write_bw");
  const Json& device = process["devices"][0];
  EXPECT_EQ(device["name"], "rxeu0");
  EXPECT_EQ(device["queue_pair_count"], 2);
  EXPECT_EQ(device["counters"]["sent_pkts"], 5);
  EXPECT_EQ(device["counters"]["rx_icrc_encapsulated"], 0);
  EXPECT_EQ(device["counters"].size(),
            rxe_user::CountersOf(rxe_user::LaneReport()).size());
  EXPECT_EQ(device["lanes"][0]["counters"]["lane_rounds"], 8);
  const Json& qp = device["queue_pairs"][0];
  EXPECT_EQ(qp["qpn"], 0x50011);
  EXPECT_EQ(qp["state"], "RTS");
  EXPECT_EQ(qp["peer_qpn"], 0x60022);
  EXPECT_EQ(qp["peer_address"], "192.0.2.2");
  EXPECT_EQ(qp["unacked_psn"], 15);
  EXPECT_EQ(qp["counters"]["retrans_pkts"], 1);
  EXPECT_FALSE(device["queue_pairs"][1].contains("peer_qpn"));
}

TEST(StatFormat, WatchShowsChanges) {
  const auto changes = Changes(Processes(5), Processes(12));
  EXPECT_EQ(WatchHeader(),
            "TIME      PROCESS  COMMAND          DEVICE      QPS   SENT PKTS"
            "     SENT BYTES   RCVD PKTS     RCVD BYTES  OTHER\n");
  EXPECT_EQ(WatchLines(changes, "12:34:56"),
            "12:34:56     4711  ib_write_bw      rxeu0         2           7"
            "              0           0              0  -\n");
  const Json json = Json::parse(WatchJson(changes, "12:34:56"));
  EXPECT_EQ(json["time"], "12:34:56");
  const Json& device = json["processes"][0]["devices"][0];
  EXPECT_EQ(device["counters"]["sent_pkts"], 7);
  EXPECT_EQ(device["counters"]["retrans_pkts"], 0);
  EXPECT_FALSE(device.contains("queue_pairs"));
  // A new device has no change yet; a removed one has none any more.
  EXPECT_TRUE(Changes({}, Processes(5)).empty());
  EXPECT_TRUE(Changes(Processes(5), {}).empty());
}

TEST(StatFormat, NothingOfALongLineIsCutOff) {
  auto processes = Processes(5);
  auto& counters = processes[0].devices[0].device.counters;
  for (auto& [name, value] : counters) value = 123'456;
  const std::string line = WatchLines(processes, "12:34:56");
  EXPECT_TRUE(line.ends_with("\n"));
  for (const auto& [name, value] : counters) {
    if (std::ranges::count(UsualCounters(), name) != 0) continue;
    EXPECT_NE(line.find(name + "=123456"), std::string::npos) << name;
  }
}

// Two containers that share a network each have a process 1.
TEST(StatFormat, ProcessesOfOneNumberStayApart) {
  std::vector<StatProcess> both = {Processes(5)[0], Processes(900)[0]};
  both[0].instance = 1;
  both[1].instance = 2;
  const auto changes = Changes(both, both);
  ASSERT_EQ(changes.size(), 2u);
  for (const StatProcess& process : changes) {
    EXPECT_EQ(CounterOf(process.devices[0].device, "sent_pkts"), 0u);
  }
}

TEST(StatFormat, UsualCountersExist) {
  const auto all = rxe_user::CountersOf(rxe_user::LaneReport());
  for (const std::string& name : UsualCounters()) {
    EXPECT_TRUE(std::ranges::any_of(all, [&](const auto& value) {
      return value.counter->name == name;
    })) << name;
  }
}

TEST(StatModel, NonsenseIsNoReport) {
  EXPECT_FALSE(ReadReport(1, "").has_value());
  EXPECT_FALSE(ReadReport(1, "rxe_user-stat 2\nlane index=0\nend\n"));
  EXPECT_TRUE(ReadReport(1, "rxe_user-stat 2\nsomething new=1\nend\n") ==
              std::nullopt);
}

// --- With an engine in this process that answers.

class StatCommandTest : public ::testing::Test {
 protected:
  // Hides the engine of this test from other programs that ask all engines. It
  // counts the requests.
  void SetUp() override { (void)::unshare(CLONE_NEWNET); }

  // Answers this many requests. After `pause` of them, answers none until the
  // descriptor is readable or its other end is closed.
  void Serve(uint64_t reports = std::numeric_limits<uint64_t>::max(),
             uint64_t pause = 0, int until = -1) {
    auto server = rxe_user::StatServer::Open([this, reports] {
      const uint64_t number = ++given_;
      return number <= reports ? rxe_user::ReportText(Sample(number)) : "";
    });
    ASSERT_TRUE(server.ok()) << server.status();
    thread_ = std::thread([=, this, own = *std::move(server)] {
      for (bool paused = false; !stop_ && given_ < reports;) {
        if (until >= 0 && given_ == pause && !std::exchange(paused, true)) {
          pollfd p = {until, POLLIN, 0};
          EXPECT_EQ(::poll(&p, 1, -1), 1);
        }
        pollfd p = {own->fd(), POLLIN, 0};
        if (::poll(&p, 1, 10) == 1) own->OnReadable();
      }
    });
  }
  ~StatCommandTest() override {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }

  // Sets out_ and err_.
  int Run(const StatOptions& options) {
    char* err = nullptr;
    size_t err_size = 0;
    std::FILE* const err_file = ::open_memstream(&err, &err_size);
    const int status = Run(options, err_file);
    std::fclose(err_file);
    err_.assign(err, err_size);
    std::free(err);
    return status;
  }
  // Sets out_.
  int Run(const StatOptions& options, std::FILE* err_file) {
    char* out = nullptr;
    size_t out_size = 0;
    std::FILE* const out_file = ::open_memstream(&out, &out_size);
    const int status = RunStat(options, out_file, err_file);
    std::fclose(out_file);
    out_.assign(out, out_size);
    std::free(out);
    return status;
  }

  std::string out_, err_;

 private:
  std::atomic<uint64_t> given_ = 0;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

TEST_F(StatCommandTest, ShowsTheProcessThatIsAskedFor) {
  Serve();
  EXPECT_EQ(Run({.pid = ::getpid()}), 0);
  EXPECT_NE(out_.find("0x050011"), std::string::npos) << out_;
  EXPECT_EQ(err_, "");
  EXPECT_EQ(Run({.pid = ::getpid(), .json = true}), 0);
  EXPECT_EQ(Json::parse(out_)["processes"][0]["pid"], ::getpid());
  // The engine's process is among all processes.
  EXPECT_EQ(Run({.json = true}), 0);
  bool found = false;
  const Json all = Json::parse(out_);
  for (const Json& process : all["processes"]) {
    found |= process["pid"] == ::getpid();
  }
  EXPECT_TRUE(found);
}

TEST_F(StatCommandTest, NoSuchProcessIsOneLineAndStatus1) {
  Serve();
  EXPECT_EQ(Run({.pid = 1}), 1);
  EXPECT_EQ(out_, "");
  EXPECT_EQ(err_, "rxe-user stat: process 1 has no queue pair on our device\n");
}

TEST_F(StatCommandTest, WatchesUntilItEnds) {
  Serve(4);
  EXPECT_EQ(Run({.pid = ::getpid(), .watch = 0.02}), 0);
  // The header, and a line for each report except the first, each one packet
  // more.
  EXPECT_TRUE(out_.starts_with("TIME")) << out_;
  EXPECT_EQ(std::ranges::count(out_, '\n'), 4) << out_;
  EXPECT_NE(out_.find("           1              0"), std::string::npos)
      << out_;
}

// A process that is stopped, as by a debugger, answers later.
TEST_F(StatCommandTest, WatchesAProcessThatDoesNotAnswerForAWhile) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  std::FILE* const err_file = ::fdopen(ends[1], "w");
  ::setbuf(err_file, nullptr);
  Serve(8, 3, ends[0]);
  EXPECT_EQ(Run({.pid = ::getpid(), .watch = 0.02}, err_file), 0);
  std::fclose(err_file);
  std::FILE* const read_file = ::fdopen(ends[0], "r");
  char line[200] = "";
  EXPECT_NE(std::fgets(line, sizeof(line), read_file), nullptr);
  EXPECT_TRUE(std::string(line).starts_with("rxe-user stat: process " +
                                            std::to_string(::getpid()) + ": "))
      << line;
  std::fclose(read_file);
  // The header, the two lines before, and some after.
  EXPECT_GE(std::ranges::count(out_, '\n'), 4) << out_;
}

}  // namespace
}  // namespace rxe_user_cli
