// An endpoint whose queue pairs exist needs no more memory: the threads that
// call it, and polls, could not report a failure.
#include <gtest/gtest.h>

#include <cstdint>

#include "transport/sim/endpoint_call.h"
#include "transport/sim/incast.h"
#include "transport/sim/transfer.h"
#include "transport/testing/scarce_memory.h"

namespace {

bool no_memory = false;  // for endpoints
uint64_t refused = 0;

bool Refuse() {
  if (!no_memory || !sim::in_endpoint) return false;
  ++refused;
  return true;
}

}  // namespace

namespace sim {
namespace {

using transport::kMillisecond;
using transport::SendOpcode;

class OutOfMemoryTest : public ::testing::TestWithParam<SendOpcode> {
 protected:
  void SetUp() override {
    transport::refuse_allocation = Refuse;
    refused = 0;
    no_memory = true;
  }
  void TearDown() override { no_memory = false; }
};

// Packets after a gap can be neither buffered nor noted: they are
// retransmitted.
TEST_P(OutOfMemoryTest, LossesAreRepaired) {
  TransferOptions options;
  options.opcode = GetParam();
  options.messages = 8;
  options.link = TransferLink();
  options.link.loss = 10'000;
  const TransferResult result = RunTransfer(options);
  EXPECT_TRUE(result.done) << result.failed;
  EXPECT_EQ(result.requester.timeouts, 0u);
  EXPECT_GT(refused, 0u);
}

TEST_P(OutOfMemoryTest, ManyQueuePairsHaveTheirTimers) {
  IncastOptions options;
  options.opcode = GetParam();
  options.senders = 40;
  options.warm_up = kMillisecond;
  options.end = 20 * kMillisecond;
  const IncastResult result = RunIncast(options);
  EXPECT_EQ(result.failed, "");
  EXPECT_GT(result.utilisation, 0.5);
}

INSTANTIATE_TEST_SUITE_P(Operations, OutOfMemoryTest,
                         ::testing::Values(SendOpcode::kRdmaWrite,
                                           SendOpcode::kRdmaRead));

}  // namespace
}  // namespace sim
