#include "rxe_user/broker/mad_queue.h"

#include <gtest/gtest.h>

namespace rxe_user::broker {
namespace {

MadQueue::Entry From(uint8_t host, bool initial, uint16_t tag = 0) {
  MadQueue::Entry entry;
  entry.source.bytes[15] = host;
  entry.initial = initial;
  entry.head.source_port = tag;
  return entry;
}

TEST(MadQueue, KeepsTheOrder) {
  MadQueue queue;
  EXPECT_TRUE(queue.empty());
  for (uint16_t i = 0; i < 10; ++i) {
    ASSERT_TRUE(queue.Push(From(1, i % 2 == 0, i)));
  }
  for (uint16_t i = 0; i < 10; ++i) {
    EXPECT_EQ(queue.front().head.source_port, i);
    queue.Pop();
  }
  EXPECT_TRUE(queue.empty());
}

TEST(MadQueue, RequestsLeaveSpaceForConnectionsAndOtherSources) {
  MadQueue queue;
  size_t taken = 0;
  while (queue.Push(From(1, true))) ++taken;
  EXPECT_EQ(taken, MadQueue::kMax / 2);
  while (queue.Push(From(2, true))) ++taken;
  EXPECT_EQ(taken, MadQueue::kMax * 3 / 4);
  EXPECT_FALSE(queue.Push(From(3, true)));
  while (queue.Push(From(1, false))) ++taken;
  EXPECT_EQ(taken, MadQueue::kMax);
  EXPECT_EQ(queue.size(), taken);
  // A MAD that was read frees its space, for the same source.
  queue.Pop();
  EXPECT_FALSE(queue.Push(From(2, false)) && queue.Push(From(2, false)));
  while (!queue.empty()) queue.Pop();
  EXPECT_TRUE(queue.Push(From(1, true)));
}

}  // namespace
}  // namespace rxe_user::broker
