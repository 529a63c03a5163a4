// Seeds of connection management (cm_sim.h) whose managers find no memory for
// one input of five: only requests are lost, and nothing is left over.
#include <gtest/gtest.h>

#include "transport/cm/cm_sim.h"
#include "transport/testing/scarce_memory.h"

namespace transport::cm {
namespace {

void Refuse(bool refuse) { allocations_left = refuse ? 0 : kUnlimited; }

TEST(CmSimMemoryTest, BothEndsAgreeAndNothingIsLeft) {
  constexpr uint64_t kSeeds = 1000;
  refuse_allocation = RefuseWhenNoneIsLeft;
  SimStatistics sum;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    CmSim run(seed);
    run.Starve(Refuse);
    ASSERT_TRUE(run.Run()) << "seed " << seed << ": " << run.failure();
    run.AddTo(&sum);
  }
  EXPECT_GT(sum.no_memory, kSeeds);
  EXPECT_GT(sum.established, sum.connects / 4);
  EXPECT_GT(sum.disconnected, 0u);
  EXPECT_GT(sum.resolved, 0u);
}

}  // namespace
}  // namespace transport::cm
