// Threads that post events cannot report a lack of memory: no type of event is
// lost.
#include <gtest/gtest.h>
#include <poll.h>

#include <map>
#include <utility>

#include "rxe_user/objects/event_queue.h"
#include "rxe_user/objects/fake_engine.h"
#include "transport/testing/scarce_memory.h"

namespace {

thread_local bool no_memory = false;
thread_local int refused = 0;

bool Refuse() {
  if (!no_memory) return false;
  ++refused;
  return true;
}

}  // namespace

namespace rxe_user {
namespace {

bool Readable(int fd) {
  pollfd p = {fd, POLLIN, 0};
  return poll(&p, 1, 0) == 1;
}

class EventQueueMemoryTest : public testing::Test {
 protected:
  EventQueueMemoryTest() {
    transport::refuse_allocation = Refuse;
    refused = 0;
    EXPECT_EQ(queue_.Open(), 0);
  }
  ~EventQueueMemoryTest() override { no_memory = false; }

  // The number of events by element and type.
  std::map<std::pair<void*, int>, int> TakeAll() {
    std::map<std::pair<void*, int>, int> taken;
    while (Readable(queue_.fd())) {
      Event event;
      if (queue_.Take(engine_, &event) != 0) break;
      EXPECT_EQ(event.port, event.element == nullptr ? 1 : 0);
      ++taken[{event.element, event.type}];
    }
    return taken;
  }

  FakeEngine engine_;
  EventQueue queue_;
  int object_a_ = 0, object_b_ = 0, object_c_ = 0;
  EventAccount a_, b_, c_;
};

// Each object and type is reported once; events that had memory come first.
TEST_F(EventQueueMemoryTest, NoTypeIsLost) {
  queue_.Post({1, &object_a_, 0, &a_});
  no_memory = true;
  int posted = 0;
  for (; refused == 0; ++posted) queue_.Post({1, &object_a_, 0, &a_});
  for (int i = 0; i < 100; ++i) queue_.Post({1, &object_a_, 0, &a_});
  queue_.Post({31, &object_b_, 0, &b_});
  queue_.Post({0, &object_c_, 0, &c_});
  queue_.Post({2, &object_b_, 0, &b_});
  queue_.Post({9, nullptr, 1, nullptr});
  queue_.Post({10, nullptr, 1, nullptr});
  no_memory = false;
  std::map<std::pair<void*, int>, int> taken = TakeAll();
  EXPECT_EQ((taken[{&object_a_, 1}]), posted + 1);
  EXPECT_EQ((taken[{&object_b_, 31}]), 1);
  EXPECT_EQ((taken[{&object_b_, 2}]), 1);
  EXPECT_EQ((taken[{&object_c_, 0}]), 1);
  EXPECT_EQ((taken[{nullptr, 9}]), 1);
  EXPECT_EQ((taken[{nullptr, 10}]), 1);
  EXPECT_EQ(a_.taken, static_cast<uint32_t>(posted) + 1);
  EXPECT_EQ(b_.taken, 2u);
  EXPECT_FALSE(Readable(queue_.fd()));
  queue_.Post({1, &object_b_, 0, &b_});
  EXPECT_EQ(TakeAll().size(), 1u);
}

TEST_F(EventQueueMemoryTest, WithdrawsRecordedEvents) {
  no_memory = true;
  while (refused == 0) queue_.Post({1, &object_a_, 0, &a_});
  for (EventAccount* account : {&b_, &c_, &a_}) {
    queue_.Post({1, account, 0, account});
  }
  no_memory = false;
  EXPECT_EQ(queue_.Withdraw(&c_), 0u);
  EXPECT_EQ(queue_.Withdraw(&a_), 0u);
  EXPECT_TRUE(Readable(queue_.fd()));
  EXPECT_EQ(queue_.Withdraw(&b_), 0u);
  EXPECT_FALSE(Readable(queue_.fd()));
  queue_.Post({1, &object_b_, 0, &b_});
  EXPECT_EQ(TakeAll().size(), 1u);
}

// Objects outlive their queue, which must leave no pointers in them.
TEST_F(EventQueueMemoryTest, ClosedWithRecordedEvents) {
  no_memory = true;
  while (refused == 0) queue_.Post({1, &object_a_, 0, &a_});
  queue_.Post({1, &object_b_, 0, &b_});
  no_memory = false;
  queue_.Close();
  EXPECT_EQ(a_.noted, 0u);
  EXPECT_EQ(b_.noted, 0u);
  EXPECT_EQ(queue_.Withdraw(&b_), 0u);
}

}  // namespace
}  // namespace rxe_user
