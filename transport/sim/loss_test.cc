// Goodput of long transfers under loss and reordering, and recovery of lost
// tails (docs/reliability.md; all figures in loss_table).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "transport/sim/go_back_n.h"
#include "transport/sim/pair.h"
#include "transport/sim/transfer.h"

namespace sim {
namespace {

using transport::kMicrosecond;
using transport::kMillisecond;
using transport::SendOpcode;

TransferOptions Over(SendOpcode opcode, uint32_t loss, uint32_t reorder) {
  TransferOptions options;
  options.opcode = opcode;
  options.link = TransferLink();
  options.link.loss = loss;
  options.link.reorder = reorder;
  return options;
}

TransferOptions WriteOver(uint32_t loss, uint32_t reorder) {
  return Over(SendOpcode::kRdmaWrite, loss, reorder);
}

// Goodput of WRITEs without loss; READs have the same.
double Lossless() {
  static const double goodput = RunTransfer(WriteOver(0, 0)).goodput();
  return goodput;
}

// Fraction of the lossless goodput, mean of some seeds.
double Kept(SendOpcode opcode, uint32_t loss, uint64_t seeds,
            bool batches = false, Time delay = 25 * kMicrosecond) {
  double sum = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    TransferOptions options = Over(opcode, loss, 0);
    options.seed = seed;
    options.messages = 128;
    options.batches = batches;
    options.link.delay = delay;
    const TransferResult result = RunTransfer(options);
    EXPECT_TRUE(result.done) << result.failed;
    EXPECT_EQ(result.requester.timeouts, 0u);
    sum += result.goodput() / Lossless();
  }
  return sum / static_cast<double>(seeds);
}

TEST(LossTest, OneInAThousand) {
  EXPECT_GE(Kept(SendOpcode::kRdmaWrite, 1'000, 3), 0.97);
  EXPECT_GE(Kept(SendOpcode::kRdmaRead, 1'000, 2), 0.98);
}

TEST(LossTest, OneInAHundred) {
  EXPECT_GE(Kept(SendOpcode::kRdmaWrite, 10'000, 3), 0.85);
  EXPECT_GE(Kept(SendOpcode::kRdmaRead, 10'000, 2), 0.93);
}

// With GRO batches, as sockets deliver, and one ACK per batch. GRO of the
// simulated network waits for 10 us, which adds 20 us to a round trip: that is
// the whole cost.
TEST(LossTest, OneInAHundredInBatches) {
  EXPECT_GE(
      Kept(SendOpcode::kRdmaWrite, 10'000, 4, true),
      0.97 * Kept(SendOpcode::kRdmaWrite, 10'000, 4, false, 35 * kMicrosecond));
  EXPECT_GE(Kept(SendOpcode::kRdmaRead, 10'000, 2, true), 0.93);
}

class EachWay : public ::testing::TestWithParam<SendOpcode> {};

TEST_P(EachWay, OneInAHundredIsFarFromAGoBackN) {
  TransferOptions options = Over(GetParam(), 10'000, 0);
  options.messages = 128;
  const TransferResult result = RunTransfer(options);
  ASSERT_TRUE(result.done) << result.failed;
  const GoBackNResult other = RunGoBackN(options, result.mean_in_flight);
  EXPECT_GE(result.goodput(), 1.5 * other.goodput);
}

TEST_P(EachWay, ReorderedPacketsAreRarelyRetransmitted) {
  TransferOptions options = Over(GetParam(), 0, 50'000);
  options.messages = 128;
  const TransferResult result = RunTransfer(options);
  ASSERT_TRUE(result.done) << result.failed;
  EXPECT_LT(result.spurious(), 0.01);
  EXPECT_GE(result.goodput(), 0.97 * Lossless());
}

// 24 Mb/s and a round trip of 10 ms, with messages of 64 KiB.
TransferOptions OverSlowLink(SendOpcode opcode) {
  TransferOptions options = Over(opcode, 0, 0);
  options.message_bytes = 64 << 10;
  options.link.bytes_per_us = 3;
  options.link.delay = 5 * kMillisecond;
  return options;
}

// A slow, long link on which packets overtake everything in flight, in both
// directions: half a round trip and the queue.
TEST_P(EachWay, PacketsReorderedByARoundTripAreRarelyRetransmitted) {
  TransferOptions options = OverSlowLink(GetParam());
  options.messages = 512;  // the first sixty teach the reordering
  options.depth = 16;
  const TransferResult lossless = RunTransfer(options);
  ASSERT_TRUE(lossless.done) << lossless.failed;
  options.link.overtake = 50'000;
  double goodput = 0;
  double spurious = 0;
  constexpr int kSeeds = 4;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    options.seed = seed;
    const TransferResult result = RunTransfer(options);
    ASSERT_TRUE(result.done) << result.failed;
    goodput += result.goodput() / kSeeds;
    spurious += result.spurious() / kSeeds;
  }
  EXPECT_GE(goodput, 0.97 * lossless.goodput());
  EXPECT_LT(spurious, 0.05);
}

// The same with lost ACKs, and thus many duplicates: lost packets are not
// waited for. WRITE reached 0.41 and READ 0.53 when the wait was 500 us at
// most, and 0.35 and 0.48 when every duplicate made it longer.
TEST_P(EachWay, LostPacketsAreNotTakenForReordered) {
  TransferOptions options = OverSlowLink(GetParam());
  options.messages = 120;
  options.depth = 100;
  const double lossless = RunTransfer(options).goodput();
  options.link.loss = options.other_loss = 50'000;
  double kept = 0;
  constexpr int kSeeds = 24;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    options.seed = seed;
    const TransferResult result = RunTransfer(options);
    ASSERT_TRUE(result.done) << result.failed;
    kept += result.goodput() / lossless / kSeeds;
  }
  EXPECT_GE(kept, GetParam() == SendOpcode::kRdmaRead ? 0.51 : 0.39);
}

INSTANTIATE_TEST_SUITE_P(Operations, EachWay,
                         ::testing::Values(SendOpcode::kRdmaWrite,
                                           SendOpcode::kRdmaRead));

TEST(LossTest, AnOutageIsNotFatal) {
  for (const SendOpcode opcode :
       {SendOpcode::kRdmaWrite, SendOpcode::kRdmaRead}) {
    TransferOptions options = WriteOver(0, 0);
    options.opcode = opcode;
    options.outage_start = 5 * kMillisecond;
    options.outage = 100 * kMillisecond;
    const TransferResult result = RunTransfer(options);
    ASSERT_TRUE(result.done) << result.failed;
    // Probes detect its end before the queue pair's own timeout, 201 ms.
    EXPECT_EQ(result.requester.timeouts, 0u);
    EXPECT_LT(result.longest_pause, 150 * kMillisecond);
  }
}

// READs from a peer that drops requests after a gap, where requests and
// responses are lost alike: at least as fast as go-back-N of the same window
// without lost requests. The same for WRITEs to it.
class PeerKeepsNothing : public ::testing::TestWithParam<uint32_t> {
 protected:
  static TransferOptions ReadsOver(uint32_t loss) {
    TransferOptions options = Over(SendOpcode::kRdmaRead, loss, 0);
    options.message_bytes = GetParam();
    options.depth = std::max(4u, 128 * 1024 / GetParam());
    options.messages = (64 << 20) / GetParam();
    options.other_loss = loss;
    options.peer_keeps_nothing = true;
    return options;
  }
};

TEST_P(PeerKeepsNothing, ReadsAreNotSlowerThanAGoBackN) {
  for (const uint32_t loss : {1'000, 10'000}) {
    const TransferOptions options = ReadsOver(loss);
    const TransferResult result = RunTransfer(options);
    ASSERT_TRUE(result.done) << result.failed;
    const GoBackNResult other = RunGoBackN(options, result.mean_in_flight);
    EXPECT_GE(result.goodput(), other.goodput) << loss;
    EXPECT_EQ(result.requester.timeouts, 0u);
  }
}

TEST_P(PeerKeepsNothing, WritesAreNearlyAGoBackN) {
  for (const uint32_t loss : {1'000, 10'000}) {
    TransferOptions options = ReadsOver(loss);
    options.opcode = SendOpcode::kRdmaWrite;
    const TransferResult result = RunTransfer(options);
    ASSERT_TRUE(result.done) << result.failed;
    const GoBackNResult other = RunGoBackN(options, result.mean_in_flight);
    EXPECT_GE(result.goodput(), 0.75 * other.goodput) << loss;
    EXPECT_EQ(result.requester.timeouts, 0u);
  }
}

TEST_P(PeerKeepsNothing, ReadsAreNeverStuck) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    TransferOptions options = ReadsOver(50'000);
    options.seed = seed;
    options.messages /= 16;
    options.link.reorder = 20'000;
    options.link.duplicate = 10'000;
    const TransferResult result = RunTransfer(options);
    EXPECT_TRUE(result.done) << seed << ": " << result.failed;
    EXPECT_LT(result.longest_pause, 200 * kMillisecond) << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(MessageBytes, PeerKeepsNothing,
                         ::testing::Values(1u << 20, 64u << 10, 8u << 10));

// Without loss, the model and the transport are equally fast.
TEST(LossTest, AGoBackNWithoutLossIsAsFast) {
  const GoBackNResult other = RunGoBackN(WriteOver(0, 0), 256 * 1024);
  EXPECT_NEAR(other.goodput, Lossless(), Lossless() / 100);
}

// One lost packet of a message of four, by number among the packets that the
// node sends after the first request.
struct Tail {
  SendOpcode opcode;
  bool from_a;  // the sender
  int number;
};

class LostTail : public ::testing::TestWithParam<Tail> {};

TEST_P(LostTail, IsRecoveredBeforeTheTimeout) {
  const Tail& tail = GetParam();
  PairOptions options;
  options.link = TransferLink();
  Pair pair(options);
  pair.Connect();
  int seen = 0;
  bool lost = false;
  pair.net.filter = [&](const Node& from, const wire::PacketView&) {
    if ((&from == pair.a.node) != tail.from_a || ++seen != tail.number) {
      return true;
    }
    lost = true;
    return false;
  };
  ASSERT_EQ(tail.opcode == SendOpcode::kRdmaRead
                ? pair.a.Read(1, 0, 0, 4 * 1024)
                : pair.a.Write(1, 0, 0, 4 * 1024),
            0);
  ASSERT_TRUE(pair.RunUntilSent(pair.a, 1));
  EXPECT_TRUE(lost);
  EXPECT_EQ(pair.a.TakeSend()[0].status, transport::WcStatus::kSuccess);
  EXPECT_EQ(pair.a.qp->Report().counters.timeouts, 0u);
  EXPECT_LT(pair.now(), 20 * kMillisecond);
  EXPECT_FALSE(pair.checker.failed()) << pair.checker.ToString();
}

INSTANTIATE_TEST_SUITE_P(
    Packets, LostTail,
    ::testing::Values(Tail{SendOpcode::kRdmaWrite, true, 4},   // last data
                      Tail{SendOpcode::kRdmaWrite, false, 1},  // its ACK
                      Tail{SendOpcode::kRdmaRead, true, 1},    // the request
                      Tail{SendOpcode::kRdmaRead, false, 4},   // last response
                      Tail{SendOpcode::kRdmaRead, false, 1}));

}  // namespace
}  // namespace sim
