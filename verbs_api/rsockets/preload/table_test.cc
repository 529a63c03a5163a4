#include "verbs_api/rsockets/preload/table.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>

namespace rspreload {
namespace {

TEST(TableTest, TheLastOfTwoDescriptorsReturnsTheRsocket) {
  ASSERT_TRUE(Put(10, 20));
  ASSERT_TRUE(Put(11, 20));
  EXPECT_EQ(Behind(10), 20);
  EXPECT_EQ(Take(10), -1);
  EXPECT_EQ(Behind(10), -1);
  EXPECT_EQ(Behind(11), 20);
  EXPECT_EQ(Take(11), 20);
  EXPECT_EQ(Take(11), -1);
}

TEST(TableTest, LargeNumbersHaveNoRsocket) {
  EXPECT_EQ(Behind(-1), -1);
  EXPECT_EQ(Behind(1 << 30), -1);
  EXPECT_FALSE(Put(1 << 30, 20));
  EXPECT_EQ(Take(1 << 30), -1);
}

TEST(TableTest, EachReaderSeesUseOnce) {
  uint64_t first = 0, second = 0;
  Used(20, EPOLLIN);
  EXPECT_EQ(TakeUsed(20, &first), static_cast<unsigned>(EPOLLIN));
  EXPECT_EQ(TakeUsed(20, &first), 0u);
  Used(20, EPOLLOUT);
  EXPECT_EQ(TakeUsed(20, &first), static_cast<unsigned>(EPOLLOUT));
  EXPECT_EQ(TakeUsed(20, &second), static_cast<unsigned>(EPOLLIN | EPOLLOUT));
  EXPECT_EQ(TakeUsed(20, &second), 0u);
}

}  // namespace
}  // namespace rspreload
