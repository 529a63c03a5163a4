// Hosts that share one link by what its switch marks (docs/reliability.md,
// "Congestion"; incast_table has more of it).
#include "transport/sim/incast.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace sim {
namespace {

using transport::kMicrosecond;
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

// Nothing is marked, but round trips are to take 200 us (TargetDelay): of which
// 50 are the way, and 150 as much as 183 KiB of the queue. Small windows have
// up to twice that.
TEST_P(IncastTest, SharesTheLinkByDelay) {
  IncastOptions options = Options();
  options.marks = false;
  options.target_delay = 200 * kMicrosecond;
  const IncastResult result = RunIncast(options);
  EXPECT_EQ(result.failed, "");
  EXPECT_GE(result.fairness, 0.9);
  EXPECT_GT(result.utilisation, 0.85);
  EXPECT_EQ(result.marked, 0u);
  EXPECT_EQ(result.dropped, 0u);
  EXPECT_EQ(result.too_long, 0u);
  EXPECT_LT(result.longest_queue, 512u * 1024);
  if (options.senders <= 8) {
    EXPECT_LT(result.longest_queue, 256u * 1024);
  }
}

INSTANTIATE_TEST_SUITE_P(Senders, IncastTest,
                         ::testing::Values(Case{2, SendOpcode::kRdmaWrite},
                                           Case{8, SendOpcode::kRdmaWrite},
                                           Case{64, SendOpcode::kRdmaWrite},
                                           // Less than a packet each for a
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

// It is the marks that do it.
TEST(IncastWithoutMarksTest, FillsTheQueue) {
  IncastOptions options;
  options.senders = 8;
  options.marks = false;
  const IncastResult result = RunIncast(options);
  EXPECT_EQ(result.failed, "");
  EXPECT_GT(result.longest_queue, 900u * 1024);
  EXPECT_GT(result.dropped, 0u);
}

// Those who come later get as much: what the others have, they give up.
TEST(IncastByDelayTest, LateOnesGetTheirPart) {
  for (const SendOpcode opcode :
       {SendOpcode::kRdmaWrite, SendOpcode::kRdmaRead}) {
    IncastOptions options;
    options.senders = 8;
    options.opcode = opcode;
    options.marks = false;
    options.target_delay = 200 * kMicrosecond;
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

// The target does not fit: the user is told by a counter why so little gets
// through.
TEST(IncastByDelayTest, APathLongerThanTheTargetIsCounted) {
  IncastOptions options;
  options.marks = false;
  options.target_delay = 200 * kMicrosecond;
  options.delay = 500 * kMicrosecond;
  options.warm_up = 300 * kMillisecond;
  options.end = 600 * kMillisecond;
  const IncastResult result = RunIncast(options);
  EXPECT_EQ(result.failed, "");
  EXPECT_LT(result.utilisation, 0.01);
  EXPECT_GT(result.too_long, 10u);
  EXPECT_EQ(result.dropped, 0u);
}

}  // namespace
}  // namespace sim
