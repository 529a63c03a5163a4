// What rules of RXE_USER_FAULTS do to CM messages, as librdmacm asks for it.
#include <sched.h>

#include <cstdlib>

#include "tests/conformance/fixture.h"
#include "verbs_api/libibverbs/interface.h"

namespace conformance {
namespace {

// No device is open, so nothing else notices that the time of a rule is over.
// The outage used to continue.
TEST(CmFaultsTest, AnOutageEndsAtItsTime) {
  setenv("RXE_USER_FAULTS", "link down call=rdma_listen for=50ms", 1);
  rxe_user::CmFaults* const faults = rxe_user_cm_faults();
  ASSERT_NE(faults, nullptr);
  EXPECT_FALSE(faults->LinkIsDown());
  const int64_t before = NowMs();
  EXPECT_EQ(rxe_user_fail_on_command("rdma_listen"), 0);
  const bool went_down = faults->LinkIsDown();
  EXPECT_TRUE(went_down || NowMs() - before >= 50);
  while (faults->LinkIsDown() && NowMs() - before < kTimeoutMs) sched_yield();
  EXPECT_FALSE(faults->LinkIsDown());
  unsetenv("RXE_USER_FAULTS");
}

}  // namespace
}  // namespace conformance
