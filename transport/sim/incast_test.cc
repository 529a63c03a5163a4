// Many hosts on one link with ECN marks (docs/reliability.md, "Congestion";
// more in incast_table).
#include "transport/sim/incast.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "transport/sim/host_pair.h"
#include "transport/sim/pair.h"

namespace sim {
namespace {

using transport::kMillisecond;
using transport::SendOpcode;

struct Case {
  int senders;
  SendOpcode opcode;
};

class IncastTest : public ::testing::TestWithParam<Case> {
 protected:
  IncastOptions Options() const {
    IncastOptions options;
    options.senders = GetParam().senders;
    options.opcode = GetParam().opcode;
    options.warm_up = 100 * kMillisecond;
    options.end = 160 * kMillisecond;
    if (options.senders > 64) {
      options.warm_up = 300 * kMillisecond;
      options.end = 500 * kMillisecond;
    }
    return options;
  }
};

TEST_P(IncastTest, SharesTheLinkAndBoundsItsQueue) {
  const IncastResult result = RunIncast(Options());
  EXPECT_EQ(result.failed, "");
  EXPECT_GE(result.fairness, 0.9);
  EXPECT_GT(result.utilisation, 0.85);
  EXPECT_GT(result.marked, 0u);
  EXPECT_EQ(result.dropped, 0u);
  EXPECT_LT(result.longest_queue, 384u * 1024);
}

INSTANTIATE_TEST_SUITE_P(Senders, IncastTest,
                         ::testing::Values(Case{2, SendOpcode::kRdmaWrite},
                                           Case{8, SendOpcode::kRdmaWrite},
                                           Case{64, SendOpcode::kRdmaWrite},
                                           // Each sends less than a packet per
                                           // round trip.
                                           Case{256, SendOpcode::kRdmaWrite},
                                           Case{256, SendOpcode::kRdmaRead},
                                           Case{2, SendOpcode::kRdmaRead},
                                           Case{8, SendOpcode::kRdmaRead},
                                           Case{64, SendOpcode::kRdmaRead}),
                         [](const auto& info) {
                           return absl::StrCat(
                               info.param.senders,
                               info.param.opcode == SendOpcode::kRdmaRead
                                   ? "Read"
                                   : "Write");
                         });

// With GRO batches, as sockets deliver.
TEST_P(IncastTest, SharesTheLinkInBatches) {
  IncastOptions options = Options();
  if (options.senders > 64) GTEST_SKIP() << "minutes under a sanitizer";
  options.batches = true;
  const IncastResult result = RunIncast(options);
  EXPECT_EQ(result.failed, "");
  EXPECT_GE(result.fairness, 0.9);
  EXPECT_GT(result.utilisation, 0.85);
  EXPECT_EQ(result.dropped, 0u);
  EXPECT_LT(result.longest_queue, 384u * 1024);
}

// Control experiment: without marks the queue fills up.
TEST(IncastWithoutMarksTest, FillsTheQueue) {
  IncastOptions options;
  options.senders = 8;
  options.marks = false;
  const IncastResult result = RunIncast(options);
  EXPECT_EQ(result.failed, "");
  EXPECT_GT(result.longest_queue, 900u * 1024);
  EXPECT_GT(result.dropped, 0u);
}

// A hardware host that reads from many peers and sends CNPs for marked packets:
// the responders pace their responses.
class ReadByHardwareTest : public ::testing::TestWithParam<int> {
 protected:
  IncastOptions Options() const {
    IncastOptions options;
    options.senders = GetParam();
    options.opcode = SendOpcode::kRdmaRead;
    options.message = 64 * 1024;
    options.hardware_target = true;
    options.warm_up = 100 * kMillisecond;
    options.end = 250 * kMillisecond;
    return options;
  }
};

TEST_P(ReadByHardwareTest, ItsCnpsShareTheLinkAndBoundTheQueue) {
  for (const bool batches : {false, true}) {
    IncastOptions options = Options();
    options.batches = batches;
    const IncastResult result = RunIncast(options);
    EXPECT_EQ(result.failed, "");
    EXPECT_GE(result.fairness, 0.9);
    EXPECT_GT(result.utilisation, 0.85);
    EXPECT_GT(result.marked, 0u);
    EXPECT_EQ(result.dropped, 0u);
    EXPECT_LT(result.longest_queue, 384u * 1024);
  }
}

// The same without congestion control.
TEST_P(ReadByHardwareTest, WithoutCnpsTheQueueIsFull) {
  IncastOptions options = Options();
  options.marks = false;
  const IncastResult result = RunIncast(options);
  EXPECT_EQ(result.failed, "");
  EXPECT_GT(result.longest_queue, 900u * 1024);
  EXPECT_GT(result.dropped, 0u);
}

INSTANTIATE_TEST_SUITE_P(Responders, ReadByHardwareTest,
                         ::testing::Values(2, 8, 64));

// The rate belongs to the path: queue pairs share it equally.
TEST(ReadByHardwareQueuePairsTest, ShareTheRateOfTheirPath) {
  constexpr int kConnections = 6;
  HostPair hosts(1024);
  LinkProfile link;
  link.bytes_per_us = 1250;
  link.ecn_threshold = 40'000;
  hosts.net().SetAllLinks(link);
  // Faster than the link: the queue is in the network.
  hosts.net().node(1).profile().bytes_per_us = 0;
  hosts.net().node(0).profile().hardware_cnps = true;
  std::vector<HostPair::Connection*> connections;
  for (int i = 0; i < kConnections; ++i) {
    connections.push_back(&hosts.Connect(14));
  }
  for (HostPair::Connection* connection : connections) {
    hosts.Start(*connection,
                {.opcode = SendOpcode::kRdmaRead, .bytes = 65536, .depth = 8});
  }
  hosts.RunTo(50 * kMillisecond);
  std::vector<uint64_t> before;
  for (const auto* connection : connections) {
    before.push_back(connection->completed);
  }
  hosts.RunTo(250 * kMillisecond);
  EXPECT_EQ(hosts.checker().ToString(), "");
  double sum = 0;
  double squares = 0;
  uint64_t cnps = 0;
  for (int i = 0; i < kConnections; ++i) {
    const auto part =
        static_cast<double>(connections[i]->completed - before[i]);
    EXPECT_EQ(connections[i]->failed, 0u);
    sum += part;
    squares += part * part;
    cnps += connections[i]->b.qp->counters().cnps_received;
  }
  EXPECT_GT(cnps, 0u);
  EXPECT_GT(sum * 65536, 0.8 * 1250 * 200'000);
  EXPECT_GE(sum * sum / (kConnections * squares), 0.9);
}

// On a link of 32 Mb/s with 1 % loss, each packet that finds another one in the
// queue is marked. Despite the CNPs, a response arrives before the timeout. No
// retry is allowed, so a timeout would be fatal.
TEST(ReadByHardwareStormTest, NeverTimesOut) {
  for (const uint64_t seed : {1, 2, 3}) {
    PairOptions options;
    options.seed = seed;
    options.timeout = 13;  // 34 ms, and twice that
    options.retry_cnt = 0;
    options.link.bytes_per_us = 4;
    options.link.ecn_threshold = 1;
    options.link.loss = 10'000;
    options.node.hardware_cnps = true;
    Pair pair(options);
    pair.Connect();
    for (uint64_t i = 0; i < 8; ++i) pair.a.Read(i, 0, 0, 32 * 1024);
    EXPECT_TRUE(pair.RunUntilSent(pair.a, 8));
    EXPECT_EQ(pair.checker.ToString(), "");
    for (const transport::Completion& wc : pair.a.TakeSend()) {
      EXPECT_EQ(wc.status, transport::WcStatus::kSuccess);
    }
    EXPECT_GT(pair.b.qp->counters().cnps_received, 200u);
    EXPECT_EQ(pair.a.qp->counters().timeouts, 0u);
  }
}

// Senders that start later get an equal share.
TEST(IncastApartTest, LateSendersGetTheirShare) {
  for (const SendOpcode opcode :
       {SendOpcode::kRdmaWrite, SendOpcode::kRdmaRead}) {
    IncastOptions options;
    options.senders = 8;
    options.opcode = opcode;
    options.apart = 5 * kMillisecond;
    options.warm_up = 100 * kMillisecond;
    options.end = 200 * kMillisecond;
    const IncastResult result = RunIncast(options);
    EXPECT_EQ(result.failed, "");
    EXPECT_GE(result.fairness, 0.9);
    EXPECT_GT(result.utilisation, 0.85);
    EXPECT_EQ(result.dropped, 0u);
  }
}

}  // namespace
}  // namespace sim
