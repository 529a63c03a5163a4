#include "transport/base/outstanding.h"

#include "gtest/gtest.h"

namespace transport {
namespace {

TEST(OutstandingTest, UntilItsCompletionOrALaterOneIsPolled) {
  Outstanding queue;
  EXPECT_EQ(queue.retired(), 0u);
  // 0 and 1 are unsignaled, 2 and 4 have completions.
  const Place first = queue.PlaceBefore(3);
  queue.Report(3);
  const Place second = queue.PlaceBefore(5);
  queue.Report(5);
  EXPECT_EQ(queue.retired(), 0u);
  first.GiveUp();
  EXPECT_EQ(queue.retired(), 3u);
  second.GiveUp();
  EXPECT_EQ(queue.retired(), 5u);
}

TEST(OutstandingTest, NumbersWrap) {
  Outstanding queue;
  for (uint32_t end = 0xfffffff0; end != 16; ++end) {
    queue.Report(end);
    queue.PlaceBefore(end).GiveUp();
    EXPECT_EQ(queue.retired(), end);
  }
}

TEST(OutstandingTest, RequestsWithoutCompletionWaitForEarlierCompletions) {
  Outstanding queue;
  queue.Settle(2);
  EXPECT_EQ(queue.retired(), 2u);
  const Place place = queue.PlaceBefore(3);
  queue.Report(3);
  queue.Settle(4);
  queue.Settle(5);
  EXPECT_EQ(queue.retired(), 2u);
  place.GiveUp();
  EXPECT_EQ(queue.retired(), 5u);
  queue.Report(6);
  EXPECT_EQ(queue.retired(), 5u);
  queue.PlaceBefore(6).GiveUp();
  EXPECT_EQ(queue.retired(), 6u);
}

TEST(OutstandingTest, LostCompletionsWaitForEarlierCompletions) {
  Outstanding queue;
  const Place place = queue.PlaceBefore(1);
  queue.Report(1);
  for (uint32_t end = 2; end < 5; ++end) queue.Lost(queue.Report(end));
  EXPECT_EQ(queue.retired(), 0u);
  place.GiveUp();
  EXPECT_EQ(queue.retired(), 4u);
  queue.Lost(queue.Report(5));
  EXPECT_EQ(queue.retired(), 5u);
  queue.Report(6);
  EXPECT_EQ(queue.retired(), 5u);
}

TEST(OutstandingTest, InAnyOrder) {
  Retrieved queue;
  const Place place = {.queue = &queue, .any_order = true};
  place.GiveUp();
  place.GiveUp();
  EXPECT_EQ(queue.end(), 2u);
  Place().GiveUp();  // not counted
}

}  // namespace
}  // namespace transport
