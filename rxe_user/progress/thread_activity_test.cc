#include "rxe_user/progress/thread_activity.h"

#include <gtest/gtest.h>

#include <thread>

namespace rxe_user {
namespace {

using transport::kMicrosecond;
using transport::kSecond;
using transport::Time;

constexpr Time kLimit = 30 * kMicrosecond;

TEST(ThreadActivity, IdleFromTheFirstPollForNothing) {
  ThreadActivity::OnUseful();
  const Time start = kSecond;
  EXPECT_FALSE(ThreadActivity::IdleFor(kLimit, start));
  EXPECT_FALSE(ThreadActivity::IdleFor(kLimit, start + kLimit));
  EXPECT_TRUE(ThreadActivity::IdleFor(kLimit, start + kLimit + 1));
  ThreadActivity::OnUseful();
  EXPECT_FALSE(ThreadActivity::IdleFor(kLimit, start + kSecond));
}

TEST(ThreadActivity, OthersAreNotThisThread) {
  ThreadActivity::OnUseful();
  ThreadActivity::IdleFor(kLimit, kSecond);
  std::thread([] {
    ThreadActivity::OnUseful();
    EXPECT_FALSE(ThreadActivity::IdleFor(kLimit, 2 * kSecond));
  }).join();
  EXPECT_TRUE(ThreadActivity::IdleFor(kLimit, 2 * kSecond));
}

TEST(ThreadActivity, AThreadBeginsAsOneThatWasUseful) {
  std::thread([] {
    EXPECT_FALSE(ThreadActivity::IdleFor(kLimit, kSecond));
  }).join();
}

}  // namespace
}  // namespace rxe_user
