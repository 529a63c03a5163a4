// Events are posted by threads that nobody could tell that there is no memory:
// none is lost.
#include <gtest/gtest.h>
#include <poll.h>

#include <cstdlib>
#include <map>
#include <new>
#include <vector>

#include "rxe_user/objects/event_queue.h"
#include "rxe_user/objects/fake_engine.h"

namespace {

thread_local bool no_memory = false;
thread_local int refused = 0;

void* Allocate(size_t bytes) {
  if (no_memory) {
    ++refused;
    return nullptr;
  }
  return std::malloc(bytes == 0 ? 1 : bytes);
}

}  // namespace

void* operator new(size_t bytes) {
  void* const memory = Allocate(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace rxe_user {
namespace {

bool Readable(int fd) {
  pollfd p = {fd, POLLIN, 0};
  return poll(&p, 1, 0) == 1;
}

class EventQueueMemoryTest : public testing::Test {
 protected:
  EventQueueMemoryTest() {
    refused = 0;
    EXPECT_EQ(queue_.Open(), 0);
  }
  ~EventQueueMemoryTest() override { no_memory = false; }

  // Of each element.
  std::map<void*, int> TakeAll() {
    std::map<void*, int> taken;
    while (Readable(queue_.fd())) {
      Event event;
      if (queue_.Take(engine_, &event) != 0) break;
      ++taken[event.element];
    }
    return taken;
  }

  FakeEngine engine_;
  EventQueue queue_;
  int object_a_ = 0, object_b_ = 0, object_c_ = 0;
  EventAccount a_, b_, c_;
};

TEST_F(EventQueueMemoryTest, NoneIsLost) {
  const EventRoom room_a(&queue_, 1);
  const EventRoom room_b(&queue_, 1);
  const EventRoom room_c(&queue_, 1);
  no_memory = true;
  for (int i = 0; i < 100; ++i) queue_.Post({1, &object_a_, 0, &a_});
  queue_.Post({1, &object_b_, 0, &b_});
  for (int i = 0; i < 50; ++i) queue_.Post({1, &object_a_, 0, &a_});
  queue_.Post({1, &object_c_, 0, &c_});
  no_memory = false;
  EXPECT_GT(refused, 0);
  std::map<void*, int> taken = TakeAll();
  EXPECT_EQ(taken[&object_a_], 150);
  EXPECT_EQ(taken[&object_b_], 1);
  EXPECT_EQ(taken[&object_c_], 1);
  EXPECT_EQ(a_.taken, 150u);
  EXPECT_FALSE(Readable(queue_.fd()));
}

// There is room for all who have reserved it, however many that are.
TEST_F(EventQueueMemoryTest, EachHasItsRoom) {
  constexpr int kMany = 1000;
  std::vector<EventRoom> rooms;
  std::vector<int> objects(kMany);
  for (int i = 0; i < kMany; ++i) rooms.emplace_back(&queue_, 1);
  no_memory = true;
  for (int& object : objects) queue_.Post({1, &object, 0, &a_});
  no_memory = false;
  EXPECT_EQ(refused, 0);
  EXPECT_EQ(TakeAll().size(), size_t{kMany});
  EXPECT_EQ(a_.taken, uint32_t{kMany});
}

TEST_F(EventQueueMemoryTest, WithdrawsThoseThatAreCounted) {
  const EventRoom room(&queue_, 1);
  no_memory = true;
  for (int i = 0; i < 100; ++i) queue_.Post({1, &object_a_, 0, &a_});
  no_memory = false;
  EXPECT_EQ(queue_.Withdraw(&a_), 0u);
  EXPECT_FALSE(Readable(queue_.fd()));
  queue_.Post({1, &object_b_, 0, &b_});
  EXPECT_EQ(TakeAll().size(), 1u);
}

// Who cannot have room is told so when it is made.
TEST_F(EventQueueMemoryTest, RoomIsRefused) {
  const EventRoom room(&queue_, 1);
  no_memory = true;
  EXPECT_THROW(EventRoom(&queue_, 1000), std::bad_alloc);
  queue_.Post({1, &object_a_, 0, &a_});
  no_memory = false;
  EXPECT_EQ(TakeAll().size(), 1u);
}

}  // namespace
}  // namespace rxe_user
