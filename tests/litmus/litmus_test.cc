// Two threads and many rounds show a missing release or acquire. Each test
// states the orders that its structure needs.
//
// On processors that keep the order of stores (x86-64, and ARM emulated on it)
// the tests pass whatever the source says. There ThreadSanitizer, which checks
// the source, finds a missing order.
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "rxe_user/engine/adaptive_lock.h"
#include "rxe_user/memory/region_table.h"
#include "rxe_user/objects/handle_table.h"
#include "transport/base/outstanding.h"

namespace {

constexpr uint32_t kRounds = 50'000;

// Runs `round` with each number while another thread repeats `meanwhile`.
void Against(const std::function<void()>& meanwhile,
             const std::function<void(uint32_t)>& round) {
  std::atomic<bool> begun = false, done = false;
  std::thread other([&] {
    begun = true;
    while (!done) meanwhile();
  });
  while (!begun) std::this_thread::yield();
  for (uint32_t i = 1; i <= kRounds; ++i) round(i);
  done = true;
  other.join();
}

// A reader loads the version, the fields and the version again, each with
// acquire, so that no load moves past the last one. A writer makes the version
// odd before the first field and even after the last, each with release.
TEST(Litmus, ARegionIsFoundAsItWasWritten) {
  rxe_user::RegionTable table;
  rxe_user::Region region;
  // All fields of a region are derived from one number.
  const auto of = [](uint32_t key, uint64_t number) {
    rxe_user::Region made;
    made.key = key;
    made.access = static_cast<uint32_t>(number);
    made.pd = static_cast<transport::PdId>(number);
    made.host = reinterpret_cast<uint8_t*>(number << 12);
    made.length = number;
    made.iova = number << 20;
    return made;
  };
  const uint32_t key = table.Add(of(0, 1));
  uint64_t last = 0;
  Against(
      [&] {
        rxe_user::Region found;
        ASSERT_TRUE(table.Find(key, &found));
        const uint64_t number = found.length;
        EXPECT_EQ(found.access, number);
        EXPECT_EQ(found.pd, number);
        EXPECT_EQ(reinterpret_cast<uint64_t>(found.host), number << 12);
        EXPECT_EQ(found.iova, number << 20);
        // Never an earlier one than before.
        EXPECT_GE(number, last);
        last = number;
      },
      [&](uint32_t i) { ASSERT_EQ(table.Replace(of(key, i + 1)), 0); });
}

// The handle is stored before the object is published with release. A reader
// that finds the object with acquire sees its handle and its initial contents.
TEST(Litmus, AHandleFindsACompleteObject) {
  struct Object {
    uint64_t first, second;
  };
  rxe_user::HandleTable<Object> table;
  constexpr uint32_t kObjects = 64;
  std::vector<Object> objects(kRounds + 1);
  std::atomic<uint32_t> newest = 0;
  Against(
      [&] {
        const uint32_t handle = newest.load(std::memory_order_relaxed);
        const Object* object = table.Find(handle);
        if (object == nullptr) return;
        EXPECT_EQ(object->first, object->second);
        EXPECT_NE(object->first, 0u);
      },
      [&](uint32_t i) {
        static std::vector<uint32_t> handles;
        objects[i].first = objects[i].second = i;
        handles.push_back(table.Add(&objects[i]));
        newest.store(handles.back(), std::memory_order_relaxed);
        if (handles.size() > kObjects) {
          table.Remove(handles[handles.size() - kObjects - 1]);
        }
      });
}

// The class Retrieved needs no order of its own: the poster learns of the
// completion through a lock (here), which was released after the completion was
// polled.
TEST(Litmus, ASlotIsFreeAfterItsCompletionIsKnown) {
  transport::Outstanding outstanding;
  std::mutex lock;
  transport::QueueSlot slot;  // guarded by lock, like the following
  uint32_t posted = 0, told = 0;
  Against(
      [&] {  // polls
        std::lock_guard guard(lock);
        if (slot.queue == nullptr) return;
        slot.Free();
        told = slot.end;
        slot = {};
      },
      [&](uint32_t) {  // posts and completes
        std::lock_guard guard(lock);
        if (slot.queue != nullptr) return;
        EXPECT_EQ(told, posted);
        EXPECT_EQ(outstanding.retired(), posted);
        ++posted;
        outstanding.Report(posted);
        slot = outstanding.SlotBefore(posted);
      });
}

// Lock is an acquire and Unlock a release, so a holder sees what the last one
// has written without atomics.
TEST(Litmus, ALockPublishesItsData) {
  rxe_user::AdaptiveLock lock;
  uint64_t first = 0, second = 0;
  const auto step = [&] {
    lock.Lock();
    EXPECT_EQ(first, second);
    ++first;
    ++second;
    lock.Unlock();
  };
  Against(
      [&] {
        if (!lock.TryLock()) return;
        EXPECT_EQ(first, second);
        ++second;
        ++first;
        lock.Unlock();
      },
      [&](uint32_t) { step(); });
  EXPECT_GE(first, kRounds);
}

}  // namespace
