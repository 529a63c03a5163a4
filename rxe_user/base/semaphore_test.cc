#include "rxe_user/base/semaphore.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

namespace rxe_user {
namespace {

TEST(BinarySemaphore, AnotherThreadMayRelease) {
  BinarySemaphore there(false), back(false);
  int turns = 0;
  std::thread other([&] {
    for (int i = 0; i < 1000; ++i) {
      there.Acquire();
      ++turns;
      back.Release();
    }
  });
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(turns, i);
    there.Release();
    back.Acquire();
  }
  other.join();
  EXPECT_EQ(turns, 1000);
}

// Each round must end: if a wake-up is lost at the end of a round, no later
// event makes up for it.
TEST(BinarySemaphore, NoThreadSleepsWhileItIsFree) {
  BinarySemaphore semaphore(true);
  ::alarm(60);
  int count = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        for (int k = 0; k < 20; ++k) {
          semaphore.Acquire();
          ++count;
          semaphore.Release();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  ::alarm(0);
  EXPECT_EQ(count, 2000 * 3 * 20);
}

}  // namespace
}  // namespace rxe_user
