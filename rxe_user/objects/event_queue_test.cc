#include "rxe_user/objects/event_queue.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "gtest/gtest.h"
#include "rxe_user/objects/fake_engine.h"
#include "rxe_user/testing/watched_thread.h"

namespace rxe_user {
namespace {

bool Readable(int fd) {
  pollfd p = {fd, POLLIN, 0};
  return poll(&p, 1, 0) == 1;
}

class EventQueueTest : public testing::Test {
 protected:
  EventQueueTest() { EXPECT_EQ(queue_.Open(), 0); }
  FakeEngine engine_;
  EventQueue queue_;
  int object_a_ = 0, object_b_ = 0;
  EventAccount a_, b_;
};

TEST_F(EventQueueTest, ReadableWhileEventsWait) {
  EXPECT_FALSE(Readable(queue_.fd()));
  queue_.Post({1, &object_a_, 0, &a_});
  queue_.Post({2, &object_b_, 0, &b_});
  EXPECT_TRUE(Readable(queue_.fd()));
  Event event;
  ASSERT_EQ(queue_.Take(engine_, &event), 0);
  EXPECT_EQ(event.type, 1);
  EXPECT_EQ(event.element, &object_a_);
  EXPECT_TRUE(Readable(queue_.fd()));
  ASSERT_EQ(queue_.Take(engine_, &event), 0);
  EXPECT_EQ(event.type, 2);
  EXPECT_FALSE(Readable(queue_.fd()));
  EXPECT_EQ(a_.taken, 1u);
  EXPECT_EQ(b_.taken, 1u);
}

TEST_F(EventQueueTest, WithdrawsUntakenEvents) {
  queue_.Post({1, &object_a_, 0, &a_});
  Event event;
  ASSERT_EQ(queue_.Take(engine_, &event), 0);
  queue_.Post({1, &object_a_, 0, &a_});
  queue_.Post({1, &object_b_, 0, &b_});
  EXPECT_EQ(queue_.Withdraw(&a_), 1u);
  EXPECT_TRUE(Readable(queue_.fd()));
  EXPECT_EQ(queue_.Withdraw(&b_), 0u);
  EXPECT_FALSE(Readable(queue_.fd()));
}

TEST_F(EventQueueTest, NonBlocking) {
  ASSERT_EQ(fcntl(queue_.fd(), F_SETFL, O_NONBLOCK), 0);
  Event event;
  EXPECT_EQ(queue_.Take(engine_, &event), EAGAIN);
  // Take has made progress to get an event.
  EXPECT_GE(engine_.progressed, 1);
  engine_.on_progress = [this] { queue_.Post({3, nullptr, 1, nullptr}); };
  EXPECT_EQ(queue_.Take(engine_, &event), 0);
  EXPECT_EQ(event.type, 3);
}

TEST_F(EventQueueTest, BlocksUntilThereIsOne) {
  std::thread poster([this, self = gettid()] {
    EXPECT_TRUE(AwaitSleep(self));
    queue_.Post({4, nullptr, 1, nullptr});
  });
  Event event;
  EXPECT_EQ(queue_.Take(engine_, &event), 0);
  EXPECT_EQ(event.type, 4);
  poster.join();
}

TEST_F(EventQueueTest, ClosedDropsEvents) {
  queue_.Close();
  queue_.Post({1, &object_a_, 0, &a_});
  EXPECT_EQ(queue_.Withdraw(&a_), 0u);
}

}  // namespace
}  // namespace rxe_user
