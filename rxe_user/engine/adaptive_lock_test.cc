#include "rxe_user/engine/adaptive_lock.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

namespace rxe_user {
namespace {

TEST(AdaptiveLock, ExcludesAndWakes) {
  AdaptiveLock lock;
  int64_t count = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20'000; ++i) {
        lock.Lock();
        // Long enough, at times, that the other threads go to sleep.
        if (i % 4000 == 0) ::usleep(1000);
        ++count;
        lock.Unlock();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 80'000);
  EXPECT_FALSE(lock.contended());
}

TEST(AdaptiveLock, ShowsWaitingThreads) {
  AdaptiveLock lock;
  lock.Lock();
  EXPECT_FALSE(lock.TryLock());
  EXPECT_FALSE(lock.contended());
  std::thread other([&] {
    lock.Lock();
    lock.Unlock();
  });
  while (!lock.contended()) std::this_thread::yield();
  lock.Unlock();
  other.join();
  EXPECT_TRUE(lock.TryLock());
  lock.Unlock();
}

TEST(AdaptiveLock, ProtectsItsHolderFromCancellation) {
  AdaptiveLock lock;
  std::atomic<bool> held = false;
  std::atomic<bool> cancelled = false;
  std::atomic<bool> survived = false;
  std::thread holder([&] {
    lock.Lock();
    held = true;
    while (!cancelled) ::usleep(100);  // a cancellation point
    survived = true;
    lock.Unlock();
    for (;;) ::usleep(100);
  });
  while (!held) std::this_thread::yield();
  ASSERT_EQ(::pthread_cancel(holder.native_handle()), 0);
  cancelled = true;
  holder.join();
  EXPECT_TRUE(survived);
  EXPECT_TRUE(lock.TryLock());
  lock.Unlock();
}

}  // namespace
}  // namespace rxe_user
