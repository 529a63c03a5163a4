#include "transport/base/outstanding.h"

#include "gtest/gtest.h"

namespace transport {
namespace {

TEST(OutstandingTest, UntilItsCompletionOrALaterOneIsPolled) {
  Outstanding queue;
  EXPECT_EQ(queue.retired(), 0u);
  // 0 and 1 are unsignaled, 2 and 4 have completions.
  const QueueSlot first = queue.SlotBefore(3);
  queue.Report(3);
  const QueueSlot second = queue.SlotBefore(5);
  queue.Report(5);
  EXPECT_EQ(queue.retired(), 0u);
  first.Free();
  EXPECT_EQ(queue.retired(), 3u);
  second.Free();
  EXPECT_EQ(queue.retired(), 5u);
}

TEST(OutstandingTest, NumbersWrap) {
  Outstanding queue;
  for (uint32_t end = 0xfffffff0; end != 16; ++end) {
    queue.Report(end);
    queue.SlotBefore(end).Free();
    EXPECT_EQ(queue.retired(), end);
  }
}

TEST(OutstandingTest, RequestsWithoutCompletionWaitForEarlierCompletions) {
  Outstanding queue;
  queue.Settle(2);
  EXPECT_EQ(queue.retired(), 2u);
  const QueueSlot slot = queue.SlotBefore(3);
  queue.Report(3);
  queue.Settle(4);
  queue.Settle(5);
  EXPECT_EQ(queue.retired(), 2u);
  slot.Free();
  EXPECT_EQ(queue.retired(), 5u);
  queue.Report(6);
  EXPECT_EQ(queue.retired(), 5u);
  queue.SlotBefore(6).Free();
  EXPECT_EQ(queue.retired(), 6u);
}

TEST(OutstandingTest, LostCompletionsWaitForEarlierCompletions) {
  Outstanding queue;
  const QueueSlot slot = queue.SlotBefore(1);
  queue.Report(1);
  for (uint32_t end = 2; end < 5; ++end) queue.Lost(queue.Report(end));
  EXPECT_EQ(queue.retired(), 0u);
  slot.Free();
  EXPECT_EQ(queue.retired(), 4u);
  queue.Lost(queue.Report(5));
  EXPECT_EQ(queue.retired(), 5u);
  queue.Report(6);
  EXPECT_EQ(queue.retired(), 5u);
}

TEST(OutstandingTest, InAnyOrder) {
  Retrieved queue;
  const QueueSlot slot = {.queue = &queue, .any_order = true};
  slot.Free();
  slot.Free();
  EXPECT_EQ(queue.end(), 2u);
  QueueSlot().Free();  // not counted
}

}  // namespace
}  // namespace transport
