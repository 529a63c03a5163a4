#include "rxe_user/engine/alarms.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <semaphore>
#include <thread>

#include "gtest/gtest.h"

namespace rxe_user {
namespace {

using namespace std::chrono_literals;

constexpr auto kTimeout = 20s;

class AlarmsTest : public testing::Test {
 protected:
  void SetUp() override {
    auto thread = ControlThread::Start();
    ASSERT_TRUE(thread.ok());
    thread_ = *std::move(thread);
    alarms_.RunOn(thread_.get());
  }

  // Waits for an alarm at `when`; alarms that are due earlier have rung by
  // then.
  void AwaitOneMore(Alarms::Clock::time_point when) {
    std::binary_semaphore rung{0};
    const uint64_t id = alarms_.Add([&] { rung.release(); });
    alarms_.Set(id, when);
    EXPECT_TRUE(rung.try_acquire_for(kTimeout));
    alarms_.Remove(id);
  }

  Alarms alarms_;
  std::unique_ptr<ControlThread> thread_;
};

TEST_F(AlarmsTest, RingsOnceAndNotBefore) {
  std::counting_semaphore<> rung{0};
  const uint64_t id = alarms_.Add([&] { rung.release(); });
  const auto when = Alarms::Clock::now() + 20ms;
  alarms_.Set(id, when);
  ASSERT_TRUE(rung.try_acquire_for(kTimeout));
  EXPECT_GE(Alarms::Clock::now(), when);
  AwaitOneMore(when + 1ms);
  EXPECT_FALSE(rung.try_acquire());
  alarms_.Remove(id);
}

TEST_F(AlarmsTest, TheEarlierTimeCounts) {
  std::counting_semaphore<> rung{0};
  const uint64_t id = alarms_.Add([&] { rung.release(); });
  const auto now = Alarms::Clock::now();
  alarms_.Set(id, now + 1h);
  alarms_.Set(id, now + 1ms);
  alarms_.Set(id, now + 2h);
  EXPECT_TRUE(rung.try_acquire_for(kTimeout));
  alarms_.Remove(id);
}

TEST_F(AlarmsTest, ARemovedAlarmDoesNotRing) {
  bool rung = false;
  const uint64_t id = alarms_.Add([&] { rung = true; });
  const auto when = Alarms::Clock::now() + 5ms;
  alarms_.Set(id, when);
  alarms_.Remove(id);
  alarms_.Set(id, when);  // the id is no longer known
  AwaitOneMore(when + 1ms);
  EXPECT_FALSE(rung);
}

TEST_F(AlarmsTest, MaySetItselfAgain) {
  std::counting_semaphore<> rung{0};
  uint64_t id = 0;
  int left = 3;
  id = alarms_.Add([&] {
    rung.release();
    if (--left > 0) alarms_.Set(id, Alarms::Clock::now());
  });
  alarms_.Set(id, Alarms::Clock::now());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(rung.try_acquire_for(kTimeout));
  alarms_.Remove(id);
}

TEST_F(AlarmsTest, RemovalWaitsForARingingAlarm) {
  std::binary_semaphore begun{0};
  std::binary_semaphore go_on{0};
  std::atomic<bool> ended = false;
  const uint64_t id = alarms_.Add([&] {
    begun.release();
    go_on.acquire();
    ended = true;
  });
  alarms_.Set(id, Alarms::Clock::now());
  ASSERT_TRUE(begun.try_acquire_for(kTimeout));
  std::thread remover([&] {
    alarms_.Remove(id);
    EXPECT_TRUE(ended);
  });
  go_on.release();
  remover.join();
}

}  // namespace
}  // namespace rxe_user
