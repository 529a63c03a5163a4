#include "rxe_user/progress/mode.h"

#include <gtest/gtest.h>

namespace rxe_user {
namespace {

TEST(ModeMachine, IsClosedUntilThereAreSockets) {
  ModeMachine m;
  EXPECT_EQ(m.mode(), Mode::kClosed);
  m.OnOpened();
  EXPECT_EQ(m.mode(), Mode::kArmed);
  m.OnClosed();
  EXPECT_EQ(m.mode(), Mode::kClosed);
}

TEST(ModeMachine, FollowsWhatTheHelperFinds) {
  ModeMachine m;
  m.OnOpened();
  m.OnHelperRan(/*application_polls=*/false, /*more_is_near=*/true);
  EXPECT_EQ(m.mode(), Mode::kBusyPolling);
  m.OnHelperRan(false, false);
  EXPECT_EQ(m.mode(), Mode::kArmed);
  // A polling application takes precedence over busy polling.
  m.OnHelperRan(true, true);
  EXPECT_EQ(m.mode(), Mode::kPolling);
  m.OnHelperRan(false, true);
  EXPECT_EQ(m.mode(), Mode::kBusyPolling);
}

TEST(ModeMachine, EndsPollingWhenTheLeaseIsDropped) {
  ModeMachine m;
  m.OnOpened();
  m.OnLeaseDropped();
  EXPECT_EQ(m.mode(), Mode::kArmed);
  m.OnHelperRan(true, false);
  m.OnLeaseDropped();
  EXPECT_EQ(m.mode(), Mode::kArmed);
  // Dropping the lease does not end the helper's own busy polling.
  m.OnHelperRan(false, true);
  m.OnLeaseDropped();
  EXPECT_EQ(m.mode(), Mode::kBusyPolling);
}

TEST(ModeMachine, ThreadsThatWaitTakeTheHelpersPlace) {
  ModeMachine m;
  m.OnOpened();
  m.OnWaiterCame();
  m.OnWaiterCame();
  EXPECT_EQ(m.mode(), Mode::kWaiter);
  m.OnHelperRan(false, true);
  EXPECT_EQ(m.mode(), Mode::kWaiter) << "the helper need not poll";
  m.OnWaiterLeft();
  EXPECT_EQ(m.mode(), Mode::kWaiter);
  m.OnWaiterLeft();
  EXPECT_EQ(m.mode(), Mode::kArmed);
}

TEST(ModeMachine, OneThreadMayWaitWhileAnotherPolls) {
  ModeMachine m;
  m.OnOpened();
  m.OnHelperRan(true, false);
  m.OnWaiterCame();
  EXPECT_EQ(m.mode(), Mode::kPolling);
  m.OnLeaseDropped();
  EXPECT_EQ(m.mode(), Mode::kWaiter);
  m.OnHelperRan(true, false);
  EXPECT_EQ(m.mode(), Mode::kPolling);
  m.OnWaiterLeft();
  EXPECT_EQ(m.mode(), Mode::kPolling);
  m.OnHelperRan(false, false);
  EXPECT_EQ(m.mode(), Mode::kArmed);
}

}  // namespace
}  // namespace rxe_user
