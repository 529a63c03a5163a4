// Engines with several lanes, over loopback with real sockets.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "rxe_user/base/qpn.h"
#include "rxe_user/engine/engine_impl.h"
#include "rxe_user/engine/engine_registry.h"
#include "rxe_user/ports/socket_io.h"
#include "rxe_user/testing/node.h"
#include "rxe_user/testing/test_slots.h"
#include "rxe_user/testing/watched_thread.h"

namespace {

thread_local int yields = 0;  // by this thread

}  // namespace

// Replaces the C library's function.
extern "C" int sched_yield() {
  ++yields;
  return static_cast<int>(::syscall(SYS_sched_yield));
}

namespace rxe_user {
namespace {

using transport::WcStatus;

class EngineLanesTest : public ::testing::Test {
 protected:
  static constexpr int kLanes = 4;

  std::shared_ptr<EngineImpl> MakeEngine() {
    return MakeLoopbackEngine(address_, {[this] { return slots_.Acquire(); },
                                         CreateSocketPort, kLanes});
  }
  void Connect(Node* a, Node* b) {
    a->Connect(*b);
    b->Connect(*a);
  }
  void ExpectWritten(Node* from, const std::optional<transport::Completion>& c,
                     uint8_t content) {
    ASSERT_TRUE(c.has_value()) << "nothing happened";
    EXPECT_EQ(c->status, WcStatus::kSuccess);
    EXPECT_EQ(c->qpn, from->qpn());
    EXPECT_EQ(to_, std::vector<uint8_t>(to_.size(), content));
  }
  // Posts a WRITE of `content` to to_.
  void Write(Node* node, uint8_t content) {
    from_.assign(to_.size(), content);
    ASSERT_EQ(node->Write(1, from_.data(), static_cast<uint32_t>(from_.size()),
                          to_.data()),
              0);
  }

  TestSlots slots_;
  const wire::IpAddress address_ = *wire::IpAddress::Parse("127.0.0.1");
  const std::shared_ptr<EngineImpl> engine_ = MakeEngine();
  std::vector<uint8_t> from_;
  std::vector<uint8_t> to_ = std::vector<uint8_t>(20'000);
};

TEST_F(EngineLanesTest, ANewQueuePairGetsTheLaneWithTheFewest) {
  std::vector<std::vector<uint32_t>> in_lane(kLanes);
  std::set<uint16_t> slots;
  for (int i = 0; i < 2 * kLanes; ++i) {
    const auto qpn = engine_->AllocateQpn();
    ASSERT_TRUE(qpn.ok()) << qpn.status();
    const int lane = engine_->LaneOf(*qpn);
    ASSERT_NE(lane, kNoLane);
    in_lane[static_cast<size_t>(lane)].push_back(*qpn);
    slots.insert(SlotOf(*qpn));
  }
  EXPECT_EQ(slots.size(), size_t{kLanes});
  for (const auto& qpns : in_lane) EXPECT_EQ(qpns.size(), 2u);
  // New queue pairs go to the lanes from which others were removed.
  for (const uint32_t qpn : in_lane[2]) engine_->ReleaseQpn(qpn);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(engine_->LaneOf(*engine_->AllocateQpn()), 2);
  }
}

// Each end of a connection has two queue pairs: one sends the application's
// answers to what the other receives.
TEST_F(EngineLanesTest, XrcQueuePairsAreInOneLane) {
  ASSERT_EQ(engine_->LaneOf(*engine_->AllocateQpn()), 0);
  std::vector<uint32_t> xrc;
  for (int i = 0; i < 3; ++i) xrc.push_back(*engine_->AllocateOneLaneQpn());
  for (const uint32_t qpn : xrc) EXPECT_EQ(engine_->LaneOf(qpn), 1);
  // Other types are spread as before.
  for (const int lane : {2, 3, 0, 2, 3}) {
    EXPECT_EQ(engine_->LaneOf(*engine_->AllocateQpn()), lane);
  }
  // The lane stays the same when it no longer has the fewest queue pairs, and
  // when its last one is released.
  EXPECT_EQ(engine_->LaneOf(*engine_->AllocateOneLaneQpn()), 1);
  for (const uint32_t qpn : xrc) engine_->ReleaseQpn(qpn);
  EXPECT_EQ(engine_->LaneOf(*engine_->AllocateOneLaneQpn()), 1);
}

TEST_F(EngineLanesTest, KnowsItsOwnNumbersOnly) {
  const auto other = MakeEngine();
  const uint32_t mine = *engine_->AllocateQpn();
  const uint32_t theirs = *other->AllocateQpn();
  EXPECT_EQ(engine_->LaneOf(theirs), kNoLane);
  EXPECT_EQ(other->LaneOf(mine), kNoLane);
}

// For each way of making progress.
TEST_F(EngineLanesTest, LanesOfOneEngineExchangeData) {
  Node a(engine_, address_), b(engine_, address_);
  ASSERT_NE(a.lanes(), b.lanes());
  Connect(&a, &b);
  for (uint8_t i = 1; i < 100; ++i) {
    Write(&a, i);
    ExpectWritten(&a,
                  i % 3 == 0   ? a.Watch()
                  : i % 3 == 1 ? a.Poll()
                               : a.Wait(),
                  i);
    Write(&b, i + 100);
    ExpectWritten(&b, i % 2 == 0 ? b.Poll() : b.Wait(), i + 100);
  }
}

// Polling one lane is no sign of life for the others; their helpers serve them.
TEST_F(EngineLanesTest, HelpersServeLanesThatAreNotPolled) {
  Node polled(engine_, address_), passive(engine_, address_);
  ASSERT_NE(polled.lanes(), passive.lanes());
  const auto other = MakeEngine();
  Node peer(other, address_);
  Connect(&peer, &passive);
  polled.Connect(polled);
  std::atomic<bool> stop = false;
  std::thread poller([&] {
    uint8_t from = 0, to;
    while (!stop) {
      ASSERT_EQ(polled.Write(1, &from, 1, &to), 0);
      ASSERT_TRUE(polled.Poll().has_value());
    }
  });
  while (polled.lane().mode() != Mode::kPolling) std::this_thread::yield();
  for (uint8_t i = 1; i <= 20; ++i) {
    Write(&peer, i);
    ExpectWritten(&peer, peer.Poll(), i);
    EXPECT_NE(passive.lane().mode(), Mode::kPolling);
  }
  stop = true;
  poller.join();
}

// A thread that waits for events of some lanes serves only those.
TEST_F(EngineLanesTest, AWaiterServesOnlyItsLanes) {
  Node awaited(engine_, address_), passive(engine_, address_);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  WatchedThread waiter(
      [&] { EXPECT_EQ(engine_->WaitReadable(ends[0], awaited.lanes()), 0); });
  ASSERT_TRUE(waiter.AwaitSleep());
  EXPECT_EQ(awaited.lane().mode(), Mode::kWaiter);
  EXPECT_EQ(passive.lane().mode(), Mode::kArmed);
  ASSERT_EQ(::write(ends[1], "x", 1), 1);
  waiter.join();
  EXPECT_EQ(awaited.lane().mode(), Mode::kArmed);
  ::close(ends[0]);
  ::close(ends[1]);
}

// A thread that polls several lanes keeps its core while one of them is busy.
TEST_F(EngineLanesTest, YieldsOnlyIfAllLanesAreIdle) {
  Node quiet(engine_, address_), busy(engine_, address_);
  ASSERT_NE(quiet.lanes(), busy.lanes());
  const auto is_long = [](LaneImpl& lane) {
    return lane.Progress() == LaneImpl::PollResult::kNothingForLong;
  };
  const LaneSet both = quiet.lanes() | busy.lanes();
  while (!is_long(quiet.lane()) || !is_long(busy.lane())) {
  }
  const int before = yields;
  engine_->Progress(both);
  EXPECT_EQ(yields, before + 1);  // once for both
  // One lane is busy. This thread may be preempted at times, and the helper may
  // hold the other lane's lock.
  busy.Connect(busy);
  int at_work = 0;
  for (uint8_t i = 0; i < 100; ++i) {
    Write(&busy, i);
    const int so_far = yields;
    engine_->Progress(both);
    if (yields == so_far) ++at_work;
    ASSERT_TRUE(busy.Poll().has_value());
  }
  EXPECT_GT(at_work, 50);
}

TEST_F(EngineLanesTest, ALaterAddressIsOpenInEachLane) {
  ASSERT_TRUE(engine_->AllocateQpn().ok());
  const wire::IpAddress later = *wire::IpAddress::Parse("127.0.0.9");
  for (int i = 0; i < kLanes; ++i) {
    EXPECT_FALSE(engine_->lane(i).port()->HasReceiver(later));
  }
  ASSERT_TRUE(engine_->OpenAddress(later).ok());
  for (int i = 0; i < kLanes; ++i) {
    EXPECT_TRUE(engine_->lane(i).port()->HasReceiver(later));
  }
}

TEST_F(EngineLanesTest, ReportsEachLane) {
  Node a(engine_, address_), b(engine_, address_);
  const DeviceReport report = engine_->Report();
  ASSERT_EQ(report.lanes.size(), size_t{kLanes});
  std::set<uint16_t> slots;
  size_t queue_pairs = 0;
  for (const LaneReport& lane : report.lanes) {
    slots.insert(lane.slot);
    queue_pairs += lane.queue_pairs.size();
    for (const auto& qp : lane.queue_pairs) {
      EXPECT_EQ(SlotOf(qp.qpn), lane.slot);
    }
  }
  EXPECT_EQ(slots.size(), size_t{kLanes});
  EXPECT_EQ(queue_pairs, 2u);
}

TEST_F(EngineLanesTest, TheChildOfForkOwnsNoLane) {
  auto a = std::make_unique<Node>(engine_, address_);
  auto b = std::make_unique<Node>(engine_, address_);
  Connect(a.get(), b.get());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::alarm(10);
    int wrong = 0;
    for (int i = 0; i < kLanes; ++i) {
      if (engine_->lane(i).port() != nullptr) wrong |= 1;
    }
    if (engine_->Progress(a->lanes() | b->lanes())) wrong |= 2;
    if (engine_->AllocateQpn().ok()) wrong |= 4;
    a.reset();
    b.reset();
    ::_exit(wrong);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  Write(a.get(), 7);
  ExpectWritten(a.get(), a->Poll(), 7);
}

// Threads use shared lanes in every way: mainly a test for ThreadSanitizer.
TEST_F(EngineLanesTest, ThreadsInAllLanes) {
  const auto other = MakeEngine();
  std::vector<std::thread> threads;
  for (int t = 0; t < kLanes; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 5; ++round) {
        Node a(engine_, address_), b(t % 2 == 0 ? engine_ : other, address_);
        Connect(&a, &b);
        std::vector<uint8_t> from(5000, static_cast<uint8_t>(t + 1)), to(5000);
        for (int i = 0; i < 40; ++i) {
          ASSERT_EQ(a.Write(1, from.data(), 5000, to.data()), 0);
          const auto done = i % 3 == 0   ? a.Wait()
                            : i % 3 == 1 ? a.Watch()
                                         : a.Poll();
          ASSERT_TRUE(done.has_value());
          ASSERT_EQ(done->status, WcStatus::kSuccess);
        }
        EXPECT_EQ(from, to);
        (void)engine_->Report();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Without a port broker a process has one slot.
TEST(EngineLanes, OneSlotGivesOneLane) {
  class SharedSlot final : public Slot {
   public:
    explicit SharedSlot(Slot* slot) : slot_(*slot) {}
    uint16_t number() const override { return slot_.number(); }
    absl::StatusOr<int> OpenAddress(const LocalAddress& local) override {
      return slot_.OpenAddress(local);
    }
    int fd() const override { return -1; }
    void OnReadable(const std::function<void(const Stray&)>&) override {}
    void Forward(const Stray&) override {}

   private:
    Slot& slot_;
  };
  TestSlots slots;
  const std::unique_ptr<Slot> slot = *slots.Acquire();
  const wire::IpAddress address = *wire::IpAddress::Parse("127.0.0.1");
  ::testing::internal::CaptureStderr();
  const auto engine = MakeLoopbackEngine(
      address, {[&] { return std::make_unique<SharedSlot>(slot.get()); },
                CreateSocketPort, 4});
  Node a(engine, address), b(engine, address);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "rxe_user: there is no port broker, so there is one lane only\n");
  EXPECT_EQ(a.lanes(), OnlyLane(0));
  EXPECT_EQ(b.lanes(), OnlyLane(0));
  EXPECT_EQ(engine->Report().lanes.size(), 1u);
  a.Connect(b);
  b.Connect(a);
  const std::vector<uint8_t> from(100, 7);
  std::vector<uint8_t> to(100);
  ASSERT_EQ(a.Write(1, from.data(), 100, to.data()), 0);
  ASSERT_TRUE(a.Poll().has_value());
  EXPECT_EQ(from, to);
}

// A slot that can be extended. Each has 4,094 numbers, some of them in
// quarantine.
class ExtendedSlot final : public Slot {
 public:
  static constexpr uint16_t kMax = 3;
  explicit ExtendedSlot(std::unique_ptr<Slot> slot) : slot_(std::move(slot)) {}
  uint16_t number() const override { return slot_->number(); }
  absl::StatusOr<uint16_t> Extend() override {
    if (further_ == kMax) return absl::ResourceExhaustedError("no more");
    return static_cast<uint16_t>(1000 + ++further_);
  }
  bool Owns(uint16_t number) const override {
    return number == slot_->number() ||
           (number > 1000 && number <= 1000 + further_);
  }
  absl::StatusOr<int> OpenAddress(const LocalAddress& local) override {
    return slot_->OpenAddress(local);
  }
  int fd() const override { return slot_->fd(); }
  void OnReadable(const std::function<void(const Stray&)>& deliver) override {
    slot_->OnReadable(deliver);
  }
  void Forward(const Stray& stray) override { slot_->Forward(stray); }

 private:
  const std::unique_ptr<Slot> slot_;
  uint16_t further_ = 0;
};

TEST(EngineLanes, ALaneWhoseNumbersAreInUseGetsAFurtherSlot) {
  TestSlots slots;
  const auto engine = MakeLoopbackEngine(
      *wire::IpAddress::Parse("127.0.0.1"),
      {[&]() -> absl::StatusOr<std::unique_ptr<Slot>> {
         auto slot = slots.Acquire();
         if (!slot.ok()) return slot.status();
         return std::make_unique<ExtendedSlot>(*std::move(slot));
       },
       CreateSocketPort, 1});
  std::set<uint32_t> qpns;
  std::set<uint16_t> numbers;
  // Released numbers stay in quarantine as long as there are further slots.
  constexpr size_t kComfortable = (ExtendedSlot::kMax + 1) * 3000;
  constexpr size_t kAll = (ExtendedSlot::kMax + 1) * 4094;
  const auto fill = [&](size_t count) {
    while (qpns.size() < count) {
      const auto qpn = engine->AllocateQpn();
      ASSERT_TRUE(qpn.ok()) << qpn.status();
      ASSERT_TRUE(qpns.insert(*qpn).second);
      EXPECT_EQ(engine->LaneOf(*qpn), 0);
      numbers.insert(SlotOf(*qpn));
    }
  };
  fill(kComfortable);
  EXPECT_EQ(numbers.size(), size_t{ExtendedSlot::kMax + 1});
  const auto first = engine->AllocateQpn();
  ASSERT_TRUE(first.ok());
  engine->ReleaseQpn(*first);
  for (int i = 0; i < 1000; ++i) {
    const auto other = engine->AllocateQpn();
    ASSERT_TRUE(other.ok());
    EXPECT_NE(*other, *first);
    engine->ReleaseQpn(*other);
  }
  fill(kAll);
  EXPECT_FALSE(engine->AllocateQpn().ok());
  for (const uint32_t qpn : qpns) engine->ReleaseQpn(qpn);
  EXPECT_TRUE(engine->AllocateQpn().ok());
}

// All or none: a program that asks for four lanes does not get two.
TEST(EngineLanes, AllOrNone) {
  TestSlots slots;
  std::vector<std::unique_ptr<Slot>> held;
  while (held.size() < TestSlots::kSlots - 1) held.push_back(*slots.Acquire());
  const auto engine = MakeLoopbackEngine(
      *wire::IpAddress::Parse("127.0.0.1"),
      {[&] { return slots.Acquire(); }, CreateSocketPort, 2});
  EXPECT_EQ(engine->AllocateQpn().status().code(),
            absl::StatusCode::kUnavailable);
  held.pop_back();  // the slot that the engine had taken is free again
  EXPECT_TRUE(engine->AllocateQpn().ok());
}

}  // namespace
}  // namespace rxe_user
